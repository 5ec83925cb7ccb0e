"""ONNX Runtime in this process: on the CPU, on CUDA, or through TensorRT."""

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from drut.errors import (
    DeviceUnavailableError,
    ForwardError,
    InvalidRequestError,
    MissingDependencyError,
    OutOfMemoryError,
    RuntimeClosedError,
    RuntimeUnavailableError,
)
from drut.runtimes import telemetry as _telemetry  # noqa: F401 - before the engine
from drut.runtimes.base import RuntimeInfo
from drut.runtimes.bound import BoundSession, Engine
from drut.runtimes.contract import Port, check_ports, forked
from drut.runtimes.devices import (
    CPU,
    CUDA,
    PROVIDER_OF,
    TENSORRT,
    Device,
    Provider,
    device_of,
    limited,
    parse_device,
    providers_for,
)
from drut.runtimes.freed_memory import give_back_freed_memory
from drut.runtimes.processor import saturates_int8
from drut.runtimes.threads import usable_cpus
from drut.tensors import OUTPUTS, Batch, Logits

try:
    import onnxruntime
except ImportError as exc:  # pragma: no cover - tried by the packaging test
    raise MissingDependencyError(
        "ONNX Runtime is not installed; install drut[cpu] or drut[gpu]"
    ) from exc

SessionOptions: TypeAlias = Any
_NO_MEMORY = re.compile(r"failed to allocate memory|bad_alloc|out of memory|OUT_OF_MEMORY", re.I)
_DTYPES = {"tensor(int64)": "int64", "tensor(bool)": "bool", "tensor(float)": "float32"}


@dataclass(frozen=True, slots=True)
class OrtOptions:
    """How the session is made. Everything ONNX Runtime offers can be reached from here."""

    device: str = "auto"
    threads: int | None = None  # of one forward pass on the CPU; None: the usable processors
    providers: Sequence[str | Provider] | None = None  # instead of what the device implies
    provider_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    # Used as they are, or a function that changes ours in place.
    session_options: SessionOptions | Callable[[SessionOptions], None] | None = None
    spinning: bool = False  # busy-waiting threads: faster alone, slower beside anything else
    memory_limit_mb: int | None = None  # of the arena on a CUDA device
    shrink_memory: bool = False  # give memory back after every pass; slower


class OrtRuntime:
    """One ONNX Runtime session.

    A named device is a promise: if the session would run elsewhere, opening fails. `auto` uses
    CUDA where it works and warns once where it does not.

    Args:
        graph: the ONNX file; external data is looked for beside it.
        options: device, threads, providers, session options.
        precision: of the graph, for `info`.
        batch_invariant: whether a row's answer is the same beside any other, for `info`.

    Raises:
        DeviceUnavailableError: the named device is not the one that would run.
        GraphContractError: the graph's inputs or outputs are not those of a decision graph.
        RuntimeUnavailableError: the file cannot be loaded.
    """

    def __init__(
        self,
        graph: Path,
        options: OrtOptions | None = None,
        *,
        precision: str = "fp32",
        batch_invariant: bool = True,
    ) -> None:
        options = options or OrtOptions()
        device = parse_device(options.device)
        threads = _positive("threads", options.threads) or usable_cpus()
        providers = _providers(device, options)
        _require_available(device, providers)
        self._session: Any = _open(graph, providers, _session_options(options, threads, precision))
        give_back_freed_memory()
        self._pid = os.getpid()
        used = self._session.get_providers()
        effective = _effective_device(device, providers, used)
        outputs = self._session.get_outputs()
        parallel = check_ports(graph, _ports(self._session.get_inputs()), _ports(outputs))
        # A pass whose options are all absent of the graph is fed by name, so order is free.
        self._outputs = [spec.name for spec in OUTPUTS]
        (width,) = (node.shape[1] for node in outputs if node.name == "act_logits")
        self._info = RuntimeInfo(
            name="onnxruntime",
            device=effective,
            requested_device=device.name,
            precision=precision,
            parallel=parallel,
            actions=width if isinstance(width, int) else None,
            batch_invariant=batch_invariant,
            # On the CPU passes side by side leave no thread waiting for another one's share.
            concurrent_passes=threads if effective == "cpu" else 1,
            details={
                "version": onnxruntime.__version__,
                "graph": str(graph),
                "providers": used,
                "threads": threads,
            },
        )
        self._shrinks = _shrinkage(effective) if options.shrink_memory else None
        self._run_options = self._options_of_a_run()
        graphs = _captures_graphs(dict(providers).get(used[0], {}))
        self._bound = self._bind(effective) if graphs else None

    @property
    def info(self) -> RuntimeInfo:
        return self._info

    @property
    def session(self) -> Any:
        """The `onnxruntime.InferenceSession`, None once closed."""
        return self._session

    def forward(self, batch: Batch) -> Logits:
        session, bound = self._session, self._bound
        if session is None:
            raise RuntimeClosedError("the runtime is closed; load the checkpoint again")
        if os.getpid() != self._pid:
            raise forked()
        if batch.parallel != self._info.parallel:
            raise ForwardError("the batch and the graph have different option layouts")
        try:
            options, actions = (
                session.run(self._outputs, batch.feed(), self._run_options)
                if bound is None
                else bound.run(batch.feed())
            )
        except Exception as exc:
            kind = OutOfMemoryError if _NO_MEMORY.search(str(exc)) else ForwardError
            raise kind(
                f"ONNX Runtime failed on a batch of {batch.input_ids.shape[0]} x "
                f"{batch.input_ids.shape[1]} tokens: {exc}"
            ) from exc
        return Logits(np.asarray(options, dtype=np.float32), np.asarray(actions, dtype=np.float32))

    def close(self) -> None:
        # A pass in flight holds its own reference and ends undisturbed.
        self._session = self._bound = None

    def _options_of_a_run(self, graph: int | None = None) -> Any:
        """Options of a run, None where it needs none; `graph` numbers a captured CUDA graph."""
        if self._shrinks is None and graph is None:
            return None
        made = onnxruntime.RunOptions()
        if self._shrinks is not None:
            made.add_run_config_entry("memory.enable_memory_arena_shrinkage", self._shrinks)
        if graph is not None:
            made.add_run_config_entry("gpu_graph_id", str(graph))
        return made

    def _bind(self, device: str) -> BoundSession:
        kind, _, index = device.partition(":")
        place = ("cpu" if kind == "cpu" else "cuda", int(index or 0))
        if self._info.actions is None:
            raise InvalidRequestError(
                "CUDA graphs need a graph that says how wide its act head is; export the "
                "checkpoint again, or leave enable_cuda_graph out"
            )
        engine = Engine(
            self._session,
            lambda values: onnxruntime.OrtValue.ortvalue_from_numpy(values.copy(), *place),
            lambda shape: onnxruntime.OrtValue.ortvalue_from_shape_and_type(
                shape, np.float32, *place
            ),
            self._options_of_a_run,
        )
        options, actions = self._outputs
        return BoundSession(engine, (options, actions), actions=self._info.actions)


def conflicting_packages() -> list[str]:
    """Installed distributions that all own the `onnxruntime` folder; more than one is a fault."""
    from importlib import metadata

    names = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")
    found = []
    for name in names:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise InvalidRequestError(f"{name} must be a positive whole number, got {value!r}")
    return value


def _providers(device: Device, options: OrtOptions) -> list[Provider]:
    if options.providers is None:
        available = available_providers()
        found = providers_for(device, available, options.provider_options)
    else:
        given = [(each, {}) if isinstance(each, str) else each for each in options.providers]
        own = options.provider_options
        found = [(name, {**first, **own.get(name, {})}) for name, first in given]
    limit = _positive("memory_limit_mb", options.memory_limit_mb)
    return found if limit is None else limited(found, limit)


def _shrinkage(device: str) -> str:
    """The arenas that give memory back after a pass."""
    kind, _, index = device.partition(":")
    return "cpu:0" if kind == "cpu" else f"cpu:0;gpu:{index or 0}"


def _captures_graphs(options: Mapping[str, Any]) -> bool:
    wanted = (options.get("enable_cuda_graph"), options.get("trt_cuda_graph_enable"))
    return any(str(each).lower() in ("1", "true") for each in wanted)


def _session_options(options: OrtOptions, threads: int, precision: str) -> SessionOptions:
    if isinstance(options.session_options, onnxruntime.SessionOptions):
        return options.session_options
    made = onnxruntime.SessionOptions()
    made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    made.intra_op_num_threads = threads
    made.inter_op_num_threads = 1
    made.log_severity_level = 3  # a missing provider is reported by our own error
    made.add_session_config_entry("session.intra_op.allow_spinning", str(int(options.spinning)))
    if precision == "int8" and saturates_int8():
        # Slower instructions that do not clip sums: docs/decisions/0008.
        made.add_session_config_entry("session.x64quantprecision", "1")
    if options.session_options is not None:
        options.session_options(made)
    return made


def available_providers() -> list[str]:
    """What this onnxruntime was built with, whether or not it works here."""
    return list(onnxruntime.get_available_providers())


def graph_ports(graph: Path) -> tuple[list[Any], list[Any]]:
    """ONNX Runtime's description of a graph's inputs and outputs: name, type and shape."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = _open(graph, [(CPU, {})], options)
    return session.get_inputs(), session.get_outputs()


def _open(graph: Path, providers: list[Provider], session_options: SessionOptions) -> Any:
    if any(name in (CUDA, TENSORRT) for name, _ in providers) and hasattr(
        onnxruntime, "preload_dlls"
    ):
        onnxruntime.preload_dlls()  # CUDA and cuDNN from their own wheels
    try:
        return onnxruntime.InferenceSession(
            str(graph.resolve()), sess_options=session_options, providers=providers
        )
    except Exception as exc:
        raise RuntimeUnavailableError(
            f"ONNX Runtime cannot load {graph}: {exc}. If the file is damaged or from a newer "
            "opset, export the checkpoint again"
        ) from exc


def _require_available(device: Device, asked: list[Provider]) -> None:
    """Refuse what this onnxruntime was not built with, before it warns and goes on without."""
    if not asked:
        raise InvalidRequestError("providers is empty; name at least one, or leave it out")
    missing = [name for name, _ in asked if name not in available_providers()]
    if missing:
        raise DeviceUnavailableError(
            f"device {device.name!r} was asked for, but {missing[0]} is not part of the installed "
            f"onnxruntime; {_advice()}, or pass device='cpu'"
        )
    promised = PROVIDER_OF.get(device.kind)
    if promised is not None and asked[0][0] != promised:
        raise DeviceUnavailableError(
            f"device {device.name!r} was asked for, but providers begins with {asked[0][0]}; "
            "leave one of the two out"
        )


def _effective_device(device: Device, asked: list[Provider], used: list[str]) -> str:
    """Compare what was promised with what runs; the first provider in `used` does the work."""
    index = int(dict(asked).get(used[0], {}).get("device_id", 0))
    effective = device_of(used[0], index)
    if used[0] == asked[0][0]:
        return effective
    found = f"{asked[0][0]} did not load (the session would run on {used[0]}); {_advice()}"
    if device.kind == "auto":
        warnings.warn(f"{found}. Going on with {effective}", RuntimeWarning, stacklevel=3)
        return effective
    raise DeviceUnavailableError(
        f"device {device.name!r} was asked for, but {found}; or pass device='cpu'"
    )


def _advice() -> str:
    installed = ", ".join(conflicting_packages()) or "no onnxruntime distribution"
    return (
        f"installed: {installed}. Install the CUDA and cuDNN libraries with drut[gpu] and no "
        "second onnxruntime beside it"
    )


def _ports(nodes: Sequence[Any]) -> dict[str, Port]:
    return {node.name: Port(_DTYPES.get(node.type, node.type), len(node.shape)) for node in nodes}


__all__ = ["CPU", "CUDA", "TENSORRT", "OrtOptions", "OrtRuntime", "conflicting_packages"]
