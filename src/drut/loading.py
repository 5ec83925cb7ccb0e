"""The composition root: a name or path becomes an agent on a runtime.

Everything below it is handed what it needs.
"""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, Self

from drut import settings
from drut.agent import DecisionAgent
from drut.checkpoint.bundle import (
    Bundle,
    find_version_directory,
    is_bundle,
    read_bundle,
    read_version,
    version_directory,
    versions,
)
from drut.checkpoint.config import CONFIG_NAME
from drut.checkpoint.opened import Checkpoint, open_bundle
from drut.checkpoint.source import verify_digests
from drut.decoding.calibration import calibration_of, read_calibration
from drut.decoding.identity import identity_of
from drut.errors import (
    CheckpointFormatError,
    CheckpointNotFoundError,
    GraphContractError,
    InvalidRequestError,
    InvalidTypeError,
)
from drut.execution.direct import DirectRunner, DistinctRunner
from drut.execution.passes import PassRunner
from drut.execution.policy import policy_for
from drut.execution.queue import DEFAULT_MAX_QUEUE_ROWS, queued
from drut.hooks.registry import hook_options
from drut.pipeline import Pipeline, share, whole_number
from drut.questions import UnknownKeys
from drut.runtimes.base import Runtime
from drut.runtimes.opening import RuntimeName, RuntimeOptions, open_runtime
from drut.runtimes.triton_options import Headers, TlsOptions, TritonOptions, tls_options

# The constructor takes upstream's arguments by upstream's names, more than the usual limit.
# ruff: noqa: PLR0913

DEFAULT_CHECKPOINT = "starter"


class Agent(DecisionAgent):
    """Answers typed questions about states with one checkpoint.

    Args:
        model_id_or_path: name of a bundle in a model repository, directory of a bundle, or an
            opened `Checkpoint`.
        device: `auto`, `cpu`, `cuda`, `cuda:N` or `tensorrt`; a named device is a promise. None
            reads `DRUT_DEVICE`.
        runtime: `onnxruntime`, `triton`, or any object with the `Runtime` protocol.
        url: of the Triton server: `grpc://HOST:8001`, `http://HOST:8000`, `grpcs://` or `https://`.
            None reads `DRUT_TRITON_URL`. Like all of the next six, for `triton` only.
        headers: sent with every request, or a function that is asked for them before each one.
        tls: mapping with `ca`, `certificate` and `key`, PEM files, and `insecure`, which trusts any
            server.
        server_model: name of the model on the server; None: the bundle's.
        server_version: version to ask for, or `latest` for whichever the server answers with;
            None: the bundle's.
        server_timeout: seconds one forward pass may take where no `drut.deadline` is in force.
        server_load: load the model on the server where it is not ready, and unload it on closing.
        model_repository: directory searched for the name before the usual ones.
        version: version of the bundle; None: the highest.
        expected_sha256: relative path to SHA-256, checked before anything is parsed.
        lang_temperatures: temperatures per language code.
        calibration: calibration file to apply; one of another model warns.
        calibration_any_graph: accept a calibration file that is bound to another graph.
        hooks: hooks installed from the start.
        on_predict_start: function or functions installed as start hooks, behind `hooks`.
        on_predict_end: the same for end hooks.
        hooks_raise: whether a hook's error stops a call; False turns it into a warning.
        hooks_concurrent: whether hooks of different threads may overlap.
        hooks_timeout: seconds a hook may take.
        threads: of one forward pass; None: `DRUT_THREADS`, or the processors of this container.
        providers: execution providers with their options, instead of what `device` implies.
        provider_options: further options per execution provider.
        session_options: ONNX Runtime's session options, or a function that changes ours in place.
        max_batch_tokens: padded tokens of one forward pass at most; a longer row runs alone. None:
            what suits the device.
        max_padding: share of a pass's longest row that its shortest may lack, from 0 for equal
            lengths to 1 for any; None: what suits the device.
        concurrent_passes: forward passes in flight at the same time, with the queue only; None:
            what the runtime suggests. Beside `threads=1`, the number of processors gives the most
            answers a second on a CPU, and a lone one later.
        memory_limit_mb: MiB that ONNX Runtime may take on a CUDA device; None: any.
        shrink_memory: give memory that a pass needed back after it; slower.
        queue: whether concurrent calls share forward passes and take turns; without it every call
            runs its own passes on its own thread.
        max_queue_rows: rows that wait for a pass at most; further calls are refused at once with
            `OverloadedError`.
        neutralise_specials: read the text of special tokens in states as plain text.
        unknown_keys: whether an unknown key of a question is an `error` or is `ignore`d.

    Raises:
        CheckpointError: no such checkpoint, or a damaged one.
        RuntimeUnavailableError: it cannot run here, or not on the named device.
    """

    def __new__(cls, *args: Any, **options: Any) -> Self:
        """Remember the arguments: an agent is pickled as what it was opened with."""
        agent = super().__new__(cls)
        agent._opened_with = (args, options)
        return agent

    _opened_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __init__(
        self,
        model_id_or_path: str | Path | Checkpoint = DEFAULT_CHECKPOINT,
        device: str | None = None,
        *,
        runtime: RuntimeName | Runtime = "onnxruntime",
        url: str | None = None,
        headers: Headers | None = None,
        tls: TlsOptions | Mapping[str, Any] | None = None,
        server_model: str | None = None,
        server_version: int | Literal["latest"] | None = None,
        server_timeout: float | None = None,
        server_load: bool = False,
        model_repository: str | Path | None = None,
        version: int | None = None,
        expected_sha256: Mapping[str, str] | None = None,
        lang_temperatures: Mapping[str, object] | None = None,
        calibration: str | Path | None = None,
        calibration_any_graph: bool = False,
        hooks: Any = None,
        on_predict_start: Any = None,
        on_predict_end: Any = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        hooks_timeout: float | None = None,
        threads: int | None = None,
        providers: Any = None,
        provider_options: Mapping[str, Mapping[str, Any]] | None = None,
        session_options: Any = None,
        max_batch_tokens: int | None = None,
        max_padding: float | None = None,
        concurrent_passes: int | None = None,
        memory_limit_mb: int | None = None,
        shrink_memory: bool = False,
        queue: bool = True,
        max_queue_rows: int = DEFAULT_MAX_QUEUE_ROWS,
        neutralise_specials: bool = False,
        unknown_keys: UnknownKeys = "error",
    ) -> None:
        installed = hook_options(
            hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout
        )
        checkpoint = (
            model_id_or_path
            if isinstance(model_id_or_path, Checkpoint)
            else open_by_name(model_id_or_path, model_repository, version, expected_sha256)
        )
        temperatures = calibration_of(checkpoint.config, lang_temperatures)
        if calibration is not None:
            temperatures = read_calibration(
                calibration,
                temperatures,
                identity_of(checkpoint),
                any_graph=calibration_any_graph,
            )
        wanted = RuntimeOptions(
            device=settings.default_device() if device is None else device,
            threads=settings.default_threads() if threads is None else threads,
            providers=providers,
            provider_options=provider_options or {},
            session_options=session_options,
            memory_limit_mb=memory_limit_mb,
            shrink_memory=shrink_memory,
            concurrent_passes=_at_least_one("concurrent_passes", concurrent_passes),
            server=_server(
                runtime,
                url,
                headers=headers,
                tls=tls,
                model=server_model,
                version=server_version,
                timeout=server_timeout,
                load=server_load or None,
            ),
        )
        opened = open_runtime(runtime, checkpoint, wanted)
        with ExitStack() as undo:
            if isinstance(runtime, str):  # one that was handed in is its owner's to close
                undo.callback(opened.close)
            policy = policy_for(
                opened.info,
                max_tokens=_at_least_one("max_batch_tokens", max_batch_tokens),
                max_padding=None if max_padding is None else share("max_padding", max_padding),
                max_positions=checkpoint.bundle.max_positions if checkpoint.bundle else None,
                concurrent_passes=wanted.concurrent_passes,
            )
            if not queue:
                policy = replace(policy, spread=1)  # nothing would run its passes side by side
            passes = PassRunner(opened, policy, pad_id=checkpoint.tokenizer.pad_id)
            limit = whole_number("max_queue_rows", max_queue_rows, least=1)
            line = queued(passes, limit) if queue else None
            pipeline = Pipeline(
                checkpoint,
                opened,
                temperatures,
                neutralise_specials=neutralise_specials,
                unknown_keys=unknown_keys,
                runner=DistinctRunner(line or DirectRunner(passes)),
            )
            super().__init__(
                checkpoint,
                pipeline,
                installed,
                concurrent=hooks_concurrent,
                queue=line,
            )
            undo.pop_all()

    def __reduce__(self) -> tuple[Any, ...]:
        args, options = self._opened_with
        return _reopen, (type(self), args, options)


def load(
    model_id_or_path: str | Path | Checkpoint = DEFAULT_CHECKPOINT,
    device: str | None = None,
    **options: Any,
) -> Agent:
    """Open a checkpoint and return its agent. Takes the arguments of `Agent`.

    >>> agent = drut.load("starter")
    >>> agent.predict("The app crashes", {"urgent": {"type": "noul", "instructions": "Urgent?"}})
    """
    return Agent(model_id_or_path, device, **options)


def _server(runtime: object, url: str | None, **options: Any) -> TritonOptions | None:
    """What is said about a Triton server; None where nothing is."""
    if url is None and runtime == "triton":
        url = settings.default_triton_url()
    given = {name: value for name, value in options.items() if value is not None}
    if url is None:
        if given:
            names = ", ".join(f"server_{n}" if n in _OF_SERVER else n for n in given)
            raise InvalidRequestError(f"{names} has no meaning without runtime='triton' and url")
        return None
    return TritonOptions(url, **{**given, "tls": tls_options(options["tls"])})


_OF_SERVER: Final = ("model", "version", "timeout", "load")


def _at_least_one(name: str, value: object) -> int | None:
    return None if value is None else whole_number(name, value, least=1)


def _reopen(kind: type[Agent], args: tuple[Any, ...], options: dict[str, Any]) -> Agent:
    return kind(*args, **options)


def open_by_name(
    name_or_path: str | Path,
    model_repository: str | Path | None = None,
    version: int | None = None,
    expected_sha256: Mapping[str, str] | None = None,
) -> Checkpoint:
    """Find the bundle of a name or directory and read everything of it but the graph.

    Raises:
        CheckpointNotFoundError: there is none; the message has the command that makes it.
    """
    directory = find_version(name_or_path, model_repository, version)
    digests = settings.default_digests() if expected_sha256 is None else expected_sha256
    if digests is not None:
        verify_digests(directory, digests)
    bundle = read_version(directory)
    checkpoint = open_bundle(bundle, model_id=str(name_or_path))
    expected = bundle.manifest.get("tokenizer_sha256")
    if expected is not None and expected != checkpoint.tokenizer.digest:
        raise GraphContractError(
            f"the tokenizer of bundle {bundle.name!r} version {bundle.version} is not the one its "
            f"graph was exported with (SHA-256 {checkpoint.tokenizer.digest}, expected "
            f"{expected}); restore the bundle or export the checkpoint again"
        )
    return checkpoint


def find_version(
    name_or_path: str | Path,
    model_repository: str | Path | None = None,
    version: int | None = None,
) -> Path:
    """Find the version directory of a bundle, by path or by name in the model repositories."""
    if not _is_name(name_or_path):
        raise InvalidTypeError(
            f"a checkpoint is named by a non-empty string or a path, got {name_or_path!r}"
        )
    directory = Path(os.path.expanduser(name_or_path))
    if isinstance(name_or_path, str) and not _is_path(name_or_path):
        found = find_version_directory(name_or_path, _repositories(model_repository), version)
        if found is not None:
            return found
    if os.path.isdir(directory) and is_bundle(directory):
        return version_directory(directory, version)
    if isinstance(name_or_path, Path) or _is_path(name_or_path) or os.path.isdir(directory):
        raise _no_bundle_in(directory)
    searched = ", ".join(map(str, _repositories(model_repository)))
    raise CheckpointNotFoundError(
        f"no exported bundle {name_or_path!r} in {searched}. "
        f"Export a checkpoint under this name with: drut export SOURCE --name {name_or_path}"
    )


def available_bundles(model_repository: str | Path | None = None) -> list[Bundle]:
    """Bundles in the model repositories, each name once, as `Agent` would open it."""
    found: dict[str, Bundle] = {}
    for repository in _repositories(model_repository):
        if repository.is_dir():
            for directory in sorted(repository.iterdir()):
                if directory.name not in found and versions(directory):
                    found[directory.name] = read_bundle(directory)
    return list(found.values())


def _repositories(first: str | Path | None) -> list[Path]:
    named = [] if first is None else [Path(os.path.expanduser(first))]
    return [*named, *settings.model_repositories()]


def _is_name(value: object) -> bool:
    return isinstance(value, str | Path) and bool(str(value).strip())


def _is_path(name: str) -> bool:
    return name.startswith((".", "~")) or "/" in name or "\\" in name


def _no_bundle_in(directory: Path) -> Exception:
    if os.path.isfile(directory / CONFIG_NAME):
        return CheckpointNotFoundError(
            f"{directory} is a checkpoint without an exported graph; make one with: "
            f"drut export {directory} --name {directory.name or 'NAME'}"
        )
    if os.path.isdir(directory):
        graphs = sorted(path.name for path in directory.glob("*.onnx"))
        hint = (
            f"; it has {', '.join(graphs)}, but no manifest to say which is what" if graphs else ""
        )
        return CheckpointFormatError(f"{directory} is not a bundle made by drut export{hint}")
    return CheckpointNotFoundError(
        f"there is no directory {directory}; a checkpoint of the hub is exported once with: "
        f"drut export {directory} --name NAME"
    )
