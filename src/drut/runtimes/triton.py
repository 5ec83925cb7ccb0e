"""NVIDIA Triton: the graph runs in a server, everything else stays here."""

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import numpy as np

from drut.checkpoint.opened import Checkpoint
from drut.deadlines import current_deadline, remaining
from drut.errors import (
    DeadlineExceededError,
    DeviceUnavailableError,
    ForwardError,
    GraphContractError,
    InvalidRequestError,
    RuntimeClosedError,
    RuntimeUnavailableError,
    ServerFaultError,
)
from drut.runtimes.base import RuntimeInfo
from drut.runtimes.devices import parse_device
from drut.runtimes.triton_errors import persist
from drut.runtimes.triton_handshake import DTYPES, UNNAMED, Expected, Served, agree
from drut.runtimes.triton_options import Address, TritonOptions, check_tls, parse_url
from drut.runtimes.triton_transport import Answered, Inference, ModelRef, Transport
from drut.tensors import OUTPUTS, Batch, Float32, Logits

T = TypeVar("T")

CONCURRENT_PASSES: Final = 8
"""Passes in flight: enough for the server's batcher to find company for each."""

LOAD_SECONDS: Final = 600.0
"""For the server to load a model; it may have to build a TensorRT engine first."""

_UNLOAD_SECONDS: Final = 10.0  # that closing waits for the memory on the server to be free
_OUTPUTS: Final = tuple(spec.name for spec in OUTPUTS)
_log = logging.getLogger(__name__)


class TritonRuntime:
    """The graph of one checkpoint, on a Triton server.

    Args:
        options: the server, the model, how to reach them.
        checkpoint: what lies on this side; a model that does not belong to it is refused.
        device: a named device is a promise about where the server runs the model.

    Raises:
        GraphContractError: the server's model is not the graph of this checkpoint.
        RuntimeUnavailableError: the server cannot be reached, or does not serve the model; the
            cause says which.
        DeviceUnavailableError: the server runs it elsewhere.
        InvalidRequestError: an option cannot be used.
    """

    def __init__(
        self, options: TritonOptions, checkpoint: Checkpoint, *, device: str = "auto"
    ) -> None:
        wanted = parse_device(device)
        address = parse_url(options.url)
        self._options = options
        self._model = _model_of(options, checkpoint)
        self._expected = Expected.of(checkpoint)
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._lock = threading.Lock()  # guards what follows; never held while anything is sent
        self._in_flight = 0
        self._ended = False
        self._accepted: frozenset[str] = frozenset()  # versions that were compared
        self._loaded_here = False
        self._transport = open_transport(address, options)
        try:
            version, served = self._shake_hands()
            _require_device(wanted.kind, wanted.name, served.device, str(address))
        except BaseException:
            self.close()
            raise
        self._max_rows = served.max_rows
        bundle = checkpoint.bundle
        self._info = RuntimeInfo(
            name="triton",
            device=served.device,
            requested_device=wanted.name,
            precision="unknown" if bundle is None else bundle.precision,
            parallel=self._expected.parallel,
            actions=self._expected.actions,
            batch_invariant=bundle is None or bundle.batch_invariant,
            max_rows=served.max_rows,
            concurrent_passes=CONCURRENT_PASSES,
            details={
                "version": version,
                "url": str(address),
                "model": self._model.name,
                "model_version": self._model.version_text or "latest",
                "served_versions": list(served.versions),
                "tokenizer": served.tokenizer,
                "queue": served.queue,
            },
        )

    @property
    def info(self) -> RuntimeInfo:
        return self._info

    def forward(self, batch: Batch) -> Logits:
        if os.getpid() != self._pid:
            # Neither sockets nor gRPC's threads can be shared with a forked child.
            raise ForwardError(
                "this connection was opened before the process forked; load the checkpoint in the "
                "child, for instance in a post-fork hook of the server"
            )
        if batch.parallel != self._info.parallel:
            raise ForwardError("the batch and the graph have different option layouts")
        with self._call():
            until = self._until()
            parts = [self._infer(part, until) for part in _split(batch.feed(), self._max_rows)]
        if len(parts) == 1:
            return parts[0]
        return Logits(
            np.concatenate([part.options for part in parts]),
            np.concatenate([part.actions for part in parts]),
        )

    def close(self) -> None:
        # A pass in flight ends undisturbed, and then ends the connection.
        self._closed.set()
        if os.getpid() != self._pid:
            return
        with self._lock:
            ending = self._in_flight == 0 and not self._ended
            self._ended = self._ended or ending
        if ending:
            self._end()

    @contextmanager
    def _call(self) -> Iterator[None]:
        """Keep the connection open for a call."""
        with self._lock:
            if self._closed.is_set():
                raise RuntimeClosedError("the runtime is closed; load the checkpoint again")
            self._in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1
                ending = self._closed.is_set() and self._in_flight == 0 and not self._ended
                self._ended = self._ended or ending
            if ending:
                self._end()

    def _end(self) -> None:
        try:
            if self._loaded_here:
                self._unload()
        finally:
            self._transport.close()

    def _until(self, seconds: float | None = None) -> float:
        """Moment by which the call has to be answered: the caller's, or our own."""
        left = remaining(f"the request to {self._transport.url}")
        seconds = self._options.timeout if seconds is None else seconds
        return time.monotonic() + (seconds if left is None else min(left, seconds))

    def _infer(self, feed: dict[str, Any], until: float) -> Logits:
        request = Inference(self._model, uuid.uuid4().hex, feed, _OUTPUTS)

        def attempt(seconds: float) -> Answered:
            return self._transport.infer(request, seconds)

        answered = persist(attempt, until, self._closed)
        rows, options = feed["marker_mask"].shape
        self._check_origin(answered, request, until)
        return Logits(
            self._checked(answered, OUTPUTS[0].name, (rows, options)),
            self._checked(answered, OUTPUTS[1].name, (rows, self._expected.actions)),
        )

    def _checked(self, answered: Answered, name: str, shape: tuple[int, ...]) -> Float32:
        """One output, which is there, of the right dtype and size, and our own."""
        output = answered.outputs[name]
        if output is None or output.values is None:
            # What a response cache gives that has stored a failure as if it were an answer.
            raise ServerFaultError(
                f"{self._transport.url} called the request answered and left out {name!r}. If the "
                "model has a response cache, switch it off: it also stores failures"
            )
        if output.datatype != DTYPES["float32"] or output.values.shape != shape:
            raise ServerFaultError(
                f"{self._transport.url} answered {name!r} as {output.datatype} "
                f"{list(output.values.shape)}, expected FP32 {list(shape)}"
            )
        return np.array(output.values, dtype=np.float32)

    def _check_origin(self, answered: Answered, request: Inference, until: float) -> None:
        """The answer belongs to this request and comes from a version that was compared."""
        if answered.id and answered.id != request.id:
            raise ServerFaultError(
                f"{self._transport.url} gave the answer to another request ({answered.id})"
            )
        version = answered.version
        if not version or version in self._accepted:
            return
        if request.model.version is not None:
            raise ServerFaultError(
                f"{self._transport.url} answered with version {version} of model {request.model}"
            )
        try:
            self._compare(ModelRef(request.model.name, _number(version)), until)
        except GraphContractError as exc:
            raise ServerFaultError(
                f"the server has changed to version {version}, which does not fit: {exc}"
            ) from exc

    def _shake_hands(self) -> tuple[str, Served]:
        """Find server and model, load it if that is wanted, and compare it."""
        model, until = self._model, self._until()
        try:
            server = self._ask(self._transport.server, until)
            if not self._ask(lambda left: self._transport.ready(model, left), until):
                self._make_ready(model, until)
            served = self._compare(model, until)
        except DeadlineExceededError:
            if current_deadline() is not None:
                raise
            raise RuntimeUnavailableError(
                f"{self._transport.url} did not answer within {self._options.timeout} s"
            ) from None
        except ForwardError as exc:
            raise RuntimeUnavailableError(f"the runtime triton cannot be used: {exc}") from exc
        return str(server.get("version", "unknown")), served

    def _compare(self, model: ModelRef, until: float) -> Served:
        metadata = self._ask(lambda left: self._transport.metadata(model, left), until)
        config = self._ask(lambda left: self._transport.config(model, left), until)
        served = agree(model, self._transport.url, self._expected, metadata, config)
        # A request without a version goes to the highest one that is served.
        found = {max(served.versions, key=_number, default="")}
        if model.version is not None:
            found = {str(model.version)}
        with self._lock:
            self._accepted |= found
        return served

    def _make_ready(self, model: ModelRef, until: float) -> None:
        if self._options.load:
            try:
                loaded_by = self._until(LOAD_SECONDS)
                self._ask(lambda left: self._transport.load(model.name, left), loaded_by)
                self._loaded_here = True
                until = self._until()
            except ForwardError as exc:
                raise RuntimeUnavailableError(
                    f"{self._transport.url} does not serve model {model} and could not load it: "
                    f"{exc}. {self._found(until)}"
                ) from exc
            if self._ask(lambda left: self._transport.ready(model, left), until):
                return
        raise RuntimeUnavailableError(
            f"{self._transport.url} does not serve model {model}. {self._found(until)}. Name "
            "another with server_model or server_version"
        )

    def _found(self, until: float) -> str:
        """What the server has, for a message; asking must not hide what went wrong."""
        try:
            index = self._ask(self._transport.index, until)
        except ForwardError:
            return "It does not tell which models it has"
        listed = [
            f"{each.get('name')} {each.get('version', '')} {each.get('state', '')}".strip()
            for each in index
        ]
        return f"It has: {', '.join(sorted(listed)) or 'no model'}"

    def _unload(self) -> None:
        """Give back what opening took, and wait until it is really given back."""
        name, url = self._model.name, self._transport.url
        until = time.monotonic() + _UNLOAD_SECONDS
        never = threading.Event()
        try:
            persist(lambda left: self._transport.unload(name, left), until, never)
            while _states(persist(self._transport.index, until, never), name) & _HELD:
                time.sleep(0.05)
        except ForwardError as exc:
            _log.warning("unloading model %r on %s was not confirmed: %s", name, url, exc)

    def _ask(self, question: Callable[[float], T], until: float) -> T:
        return persist(question, until, self._closed)


_HELD: Final = frozenset({"READY", "LOADING", "UNLOADING"})


def _states(index: list[Any], name: str) -> set[str]:
    return {str(each.get("state")) for each in index if each.get("name") == name}


def _number(version: str) -> int:
    return int(version) if version.isdecimal() else 0


def _model_of(options: TritonOptions, checkpoint: Checkpoint) -> ModelRef:
    """The model to ask: what the options name, else what the bundle is."""
    bundle = checkpoint.bundle
    name = options.model or (bundle.name if bundle else None)
    if not name:
        raise InvalidRequestError(
            f"{checkpoint.directory} is no exported bundle, so its name on the server is unknown; "
            "pass server_model"
        )
    version = options.version or (bundle.version if bundle else "latest")
    return ModelRef(name, None if version == "latest" else version)


def open_transport(address: Address, options: TritonOptions) -> Transport:
    """Prepare to speak the address's protocol; nothing is sent yet.

    Raises:
        InvalidRequestError: the TLS options do not fit the address.
        RuntimeUnavailableError: a file of the TLS options cannot be used.
    """
    check_tls(options.tls, address)
    try:
        if address.grpc:
            from drut.runtimes.triton_grpc import GrpcTransport

            return GrpcTransport(address, options.headers, options.tls)
        from drut.runtimes.triton_http import HttpTransport

        return HttpTransport(address, options.headers, options.tls)
    except (OSError, ValueError) as exc:
        raise RuntimeUnavailableError(f"the options of tls cannot be used: {exc}") from exc


def _require_device(kind: str, name: str, found: str, url: str) -> None:
    if kind == "auto" or found == name or (found in ("cpu", "cuda") and kind == found):
        return
    runs = "does not say where it runs the model" if found == UNNAMED else f"runs it on {found!r}"
    raise DeviceUnavailableError(
        f"device {name!r} was asked for, but {url} {runs}; leave device and DRUT_DEVICE out, or "
        "change instance_group in the server's config.pbtxt"
    )


def _split(feed: dict[str, Any], max_rows: int) -> Iterator[dict[str, Any]]:
    """Parts of at most `max_rows` rows, in order: Triton refuses a longer request."""
    feed["qtype"] = feed["qtype"][:, None]  # every tensor needs an axis beside the rows
    for start in range(0, len(feed["qtype"]), max_rows):
        yield {
            name: np.ascontiguousarray(values[start : start + max_rows])
            for name, values in feed.items()
        }
