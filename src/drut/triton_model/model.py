"""What Triton's Python backend loads: requests in, responses out, and never an exception."""

import asyncio
import json
import math
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import triton_python_backend_utils as pb_utils

from drut.batching import PassPolicy
from drut.checkpoint.bundle import Bundle, read_bundle
from drut.decoding.calibration import calibration_of
from drut.errors import (
    DeadlineExceededError,
    DrutError,
    ForwardError,
    GraphContractError,
    InvalidRequestError,
    OverloadedError,
    ServerFaultError,
    ServerNotReadyError,
)
from drut.execution.policy import policy_for
from drut.loading import open_by_name
from drut.runtimes.base import RuntimeInfo
from drut.tensors import OUTPUTS, Batch, Logits
from drut.triton_model import (
    ANSWERS,
    CPU_PADDING,
    CPU_TOKENS,
    MAX_QUEUED,
    MAX_ROWS,
    METRIC,
    OPTIONS,
    QUESTIONS,
    STATE,
)
from drut.triton_model.answering import Answerer, Call, CallerGoneError
from drut.triton_model.line import Line
from drut.triton_model.payload import read_ask, write_answers
from drut.triton_model.places import Places

TELL_SECONDS: Final = 0.25

_TRY_LATER: Final = (DeadlineExceededError, OverloadedError, ServerNotReadyError)


class TritonPythonModel:
    """Answers texts with a bundle's graph, which is another model of the same server.

    The server hands requests over as they come and is told their answers later, so that they wait
    here: in a bounded line that knows their timeouts, and from which passes are filled.
    """

    def initialize(self, args: Mapping[str, str]) -> None:
        """Read the tokenizer and settings of the bundle beside this model.

        Raises:
            TritonModelException: there is none, or not the one this model was written for.
        """
        config = json.loads(args["model_config"])
        given = {key: each["string_value"] for key, each in config.get("parameters", {}).items()}
        try:
            bundle = _bundle(Path(args["model_repository"]), given)
            checkpoint = open_by_name(bundle.directory)
            _check_tokenizer(given, checkpoint.tokenizer.digest)
            self._graph = Graph(given["graph"], bundle)
            self._answerer = Answerer(
                checkpoint, self._graph, calibration_of(checkpoint.config), _policy(given, bundle)
            )
            self._places = Places(_max_queue(given))
            self._gauge = Gauge(args["model_name"], args["model_version"])
        except DrutError as exc:
            raise pb_utils.TritonModelException(f"{args['model_name']}: {exc}") from exc
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._telling: asyncio.TimerHandle | None = None
        self._line = Line(self._answerer, self._graph.run)
        self._thread = threading.Thread(target=self._loop.run_forever, name="drut-passes")
        self._thread.start()

    def execute(self, requests: Sequence[Any]) -> list[None]:
        """Take requests in; each is answered through its sender, a fault of one is no other's."""
        taken = []
        for request in requests:
            caller = Caller(request.get_response_sender())
            if not self._places.take():
                caller.answer(_failure(self._places.overloaded()))
                continue
            calls = self._prepare(request, caller.gone)
            if isinstance(calls, Exception):
                self._places.give_back()
                caller.answer(_failure(calls))
            else:
                taken.append((calls, caller))
        if taken:
            self._loop.call_soon_threadsafe(self._begin, taken)
        return [None] * len(requests)

    def finalize(self) -> None:
        """End the thread. Requests hold their model, so there are none."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._gauge.close()

    def _prepare(self, request: Any, gone: Callable[[], bool]) -> list[Call] | Exception:
        """The rows of a request, encoded; or why it is not answered."""
        try:
            microseconds = request.timeout()
            deadline = time.monotonic() + microseconds / 1e6 if microseconds else None
            return [
                self._answerer.prepare(read_ask(*texts), deadline, gone) for texts in _rows(request)
            ]
        except Exception as exc:  # noqa: BLE001 - a lost response would hang its caller for ever
            return exc

    def _begin(self, taken: Sequence[tuple[Sequence[Call], "Caller"]]) -> None:
        for calls, caller in taken:
            task = self._loop.create_task(self._answer(calls, caller))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._tell_soon()

    def _tell_soon(self) -> None:
        """Tell the number of requests once for all that comes and goes in a while."""
        if self._telling is None:
            self._telling = self._loop.call_later(TELL_SECONDS, self._tell)

    def _tell(self) -> None:
        self._telling = None
        taken = self._places.taken
        self._gauge.tell(taken)
        if taken:
            self._tell_soon()

    async def _answer(self, calls: Sequence[Call], caller: "Caller") -> None:
        try:
            response = _response(await self._line.answer(calls))
        except Exception as exc:  # noqa: BLE001 - as above
            response = _failure(exc)
        self._places.give_back()
        caller.answer(response)


class Caller:
    """Where the answer to one request goes."""

    def __init__(self, sender: Any) -> None:
        self._sender: Any = sender

    def gone(self) -> bool:
        """Whether the request was cancelled.

        Not asked once it is answered: the server has let go of it then, and would crash.
        """
        return self._sender is not None and bool(self._sender.is_cancelled())

    def answer(self, response: Any) -> None:
        """Send the one response."""
        sender, self._sender = self._sender, None
        try:
            sender.send(response, flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        except Exception as exc:  # noqa: BLE001 - the other requests are to be answered
            _log(exc)


class Gauge:
    """How many requests a decision model holds, among the server's own metrics.

    The server counts only what waits in its queue, from which they are taken at once.
    """

    def __init__(self, model: str, version: str) -> None:
        self._metric: Any = None
        try:
            self._family = pb_utils.MetricFamily(
                name=METRIC,
                description="Requests that the model has taken and not answered",
                kind=pb_utils.MetricFamily.GAUGE,
            )
            self._metric = self._family.Metric(labels={"model": model, "version": version})
        except Exception as exc:  # noqa: BLE001 - a server without metrics says so in its own way
            pb_utils.Logger.log_warn(f"{METRIC} is not told: {exc}")

    def tell(self, requests: int) -> None:
        """Tell the server the number of a moment."""
        if self._metric is not None:
            self._metric.set(requests)

    def close(self) -> None:
        """Let go of it; a metric goes before its family."""
        self._metric = None


class Graph:
    """The bundle's graph as a runtime: another model of this server, asked without leaving it."""

    def __init__(self, name: str, bundle: Bundle) -> None:
        self._name = name
        self._version = bundle.version
        self.info = RuntimeInfo(
            "triton",
            "remote",
            precision=bundle.precision,
            parallel=bundle.manifest.get("option_layout") == "parallel",
            batch_invariant=bundle.batch_invariant,
        )

    async def run(self, batch: Batch, seconds: float | None) -> Logits:
        """Run one batch, waiting so many seconds in the graph's queue at most."""
        return _logits(await self._request(batch, seconds).async_exec(), self._name)

    def forward(self, batch: Batch) -> Logits:
        """The same, waiting for it."""
        return _logits(self._request(batch, None).exec(), self._name)

    def close(self) -> None:
        """Nothing is held."""

    def _request(self, batch: Batch, seconds: float | None) -> Any:
        return pb_utils.InferenceRequest(
            model_name=self._name,
            model_version=self._version,
            inputs=[
                pb_utils.Tensor(name, _travelling(each)) for name, each in batch.feed().items()
            ],
            requested_output_names=[spec.name for spec in OUTPUTS],
            timeout=0 if seconds is None else max(1, int(seconds * 1e6)),
            # A graph on a GPU leaves its outputs there, where no array of numpy can be.
            preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU, 0),
        )


def _bundle(place: Path, given: Mapping[str, str]) -> Bundle:
    """The bundle beside this model's directory, or where the parameter `bundle` says."""
    for key in ("graph", "bundle_version"):
        if not given.get(key):
            raise GraphContractError(
                f"the config lacks the parameter {key!r}; write it with: drut repository write"
            )
    directory = Path(given["bundle"]) if given.get("bundle") else place.parent / given["graph"]
    return read_bundle(directory, int(given["bundle_version"]))


def _policy(given: Mapping[str, str], bundle: Bundle) -> PassPolicy:
    """How rows become passes of the graph, by where the config says that it runs.

    One pass at a time fills it best. A GPU is done so soon that the way to it and back counts, so
    the next pass is under way there while one runs.
    """
    target = given.get("target", "cpu")
    padding = given.get("max_padding")
    share = CPU_PADDING if target == "cpu" else 1.0
    if padding is not None:
        try:
            share = float(padding)
        except ValueError:
            share = math.nan
    if not 0 <= share <= 1:
        raise GraphContractError(f"max_padding must be a number from 0 to 1, got {padding!r}")
    facts = RuntimeInfo(
        "onnxruntime",  # asked for its shapes as the engine that runs it, not as a remote server
        target,
        batch_invariant=bundle.batch_invariant,
        max_rows=MAX_ROWS,
    )
    return policy_for(
        facts,
        max_tokens=CPU_TOKENS if target == "cpu" else None,
        max_padding=share,
        max_positions=bundle.max_positions,
        concurrent_passes=1 if target == "cpu" else 2,
    )


def _max_queue(given: Mapping[str, str]) -> int:
    text = given.get("max_queue", str(MAX_QUEUED))
    if not text.isdecimal() or int(text) < 1:
        raise GraphContractError(f"max_queue must be a positive whole number, got {text!r}")
    return int(text)


def _check_tokenizer(given: Mapping[str, str], digest: str) -> None:
    expected = given.get("tokenizer_sha256")
    if expected and expected != digest:
        raise GraphContractError(
            f"the config names the tokenizer {expected}, the bundle has {digest}; write the config "
            "anew with: drut repository write"
        )


def _rows(request: Any) -> list[tuple[bytes, bytes, bytes | None]]:
    """The texts of every row of a request."""
    states, questions, options = (_column(request, name) for name in (STATE, QUESTIONS, OPTIONS))
    return list(zip(states, questions, options or [None] * len(states), strict=True))


def _column(request: Any, name: str) -> list[Any]:
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return [] if tensor is None else list(tensor.as_numpy().reshape(-1))


def _travelling(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Triton wants a dimension beside the rows: [rows] travels as [rows, 1]."""
    return np.ascontiguousarray(array if array.ndim > 1 else array[:, None])


def _logits(response: Any, graph: str) -> Logits:
    if response.has_error():
        raise _error(response.error(), graph)
    found = [pb_utils.get_output_tensor_by_name(response, spec.name) for spec in OUTPUTS]
    for spec, tensor in zip(OUTPUTS, found, strict=True):
        if tensor is None:  # a response cache gives failed responses back as empty successes
            raise ServerFaultError(f"{graph} answered without its output {spec.name!r}")
    options, actions = (np.array(tensor.as_numpy()) for tensor in found)
    return Logits(options, actions)


def _error(fault: Any, graph: str) -> ForwardError:
    said = f"{graph}: {fault.message()}"
    if "timeout expired" in said:
        return DeadlineExceededError(said)
    if "maximum queue size" in said:
        return OverloadedError(said)
    # A stopping server and an unloaded model come back as internal errors.
    if fault.code() in (pb_utils.TritonError.UNAVAILABLE, pb_utils.TritonError.NOT_FOUND) or (
        "not ready" in said
    ):
        return ServerNotReadyError(said)
    return ServerFaultError(said)


def _response(results: Sequence[Any]) -> Any:
    failed = [each for each in results if isinstance(each, Exception)]
    if failed:
        return _failure(failed[0])
    try:
        texts = np.array([write_answers(each) for each in results], np.object_)
    except ValueError as exc:
        return _failure(exc)
    return pb_utils.InferenceResponse([pb_utils.Tensor(ANSWERS, texts.reshape(-1, 1))])


def _failure(exc: Exception) -> Any:
    code = pb_utils.TritonError.INTERNAL
    said = str(exc)
    if isinstance(exc, InvalidRequestError):
        code = pb_utils.TritonError.INVALID_ARG
    elif isinstance(exc, _TRY_LATER):
        code = pb_utils.TritonError.UNAVAILABLE
    elif isinstance(exc, CallerGoneError):
        code = pb_utils.TritonError.CANCELLED
    elif not isinstance(exc, DrutError):
        _log(exc)
        said = f"unexpected {type(exc).__name__}; the server's log has its traceback"
    return pb_utils.InferenceResponse(error=pb_utils.TritonError(said, code))


def _log(exc: Exception) -> None:
    pb_utils.Logger.log_error("".join(traceback.format_exception(exc)))
