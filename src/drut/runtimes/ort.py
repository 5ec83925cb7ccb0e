"""ONNX Runtime in this process: on the CPU, on CUDA, or through TensorRT."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from drut.errors import (
    DeviceUnavailableError,
    ForwardError,
    GraphContractError,
    InvalidRequestError,
    MissingDependencyError,
    RuntimeClosedError,
    RuntimeUnavailableError,
)
from drut.runtimes.base import RuntimeInfo
from drut.runtimes.devices import (
    CPU,
    CUDA,
    PROVIDER_OF,
    TENSORRT,
    Device,
    Provider,
    device_of,
    parse_device,
    providers_for,
)
from drut.runtimes.threads import usable_cpus
from drut.tensors import INPUTS, OUTPUTS, PARALLEL_INPUTS, Batch, Logits, TensorSpec

try:
    import onnxruntime
except ImportError as exc:  # pragma: no cover - tried by the packaging test
    raise MissingDependencyError(
        "ONNX Runtime is not installed; install drut[cpu] or drut[gpu]"
    ) from exc

SessionOptions: TypeAlias = Any
_ORT_TYPES = {"int64": "tensor(int64)", "bool": "tensor(bool)", "float32": "tensor(float)"}


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


class OrtRuntime:
    """One ONNX Runtime session.

    A named device is a promise: if the session would run elsewhere, opening fails. `auto` uses
    CUDA where it works and warns once where it does not.

    Args:
        graph: the ONNX file; external data is looked for beside it.
        options: device, threads, providers, session options.
        precision: of the graph, for `info`.

    Raises:
        DeviceUnavailableError: the named device is not the one that would run.
        GraphContractError: the graph's inputs or outputs are not those of a decision graph.
        RuntimeUnavailableError: the file cannot be loaded.
    """

    def __init__(
        self, graph: Path, options: OrtOptions | None = None, *, precision: str = "fp32"
    ) -> None:
        options = options or OrtOptions()
        device = parse_device(options.device)
        threads = _threads(options)
        providers = _providers(device, options)
        _require_available(device, providers)
        self._session: Any = _open(graph, providers, _session_options(options, threads))
        self._pid = os.getpid()
        used = self._session.get_providers()
        effective = _effective_device(device, providers, used)
        parallel = _check_contract(graph, self._session)
        # A pass whose options are all absent of the graph is fed by name, so order is free.
        self._outputs = [spec.name for spec in OUTPUTS]
        actions = self._session.get_outputs()[_names(self._session.get_outputs())["act_logits"]]
        width = actions.shape[1] if len(actions.shape) > 1 else None
        self._info = RuntimeInfo(
            name="onnxruntime",
            device=effective,
            requested_device=device.name,
            precision=precision,
            parallel=parallel,
            actions=width if isinstance(width, int) else None,
            details={
                "version": onnxruntime.__version__,
                "graph": str(graph),
                "providers": used,
                "threads": threads,
            },
        )

    @property
    def info(self) -> RuntimeInfo:
        return self._info

    @property
    def session(self) -> Any:
        """The `onnxruntime.InferenceSession`, None once closed."""
        return self._session

    def forward(self, batch: Batch) -> Logits:
        session = self._session
        if session is None:
            raise RuntimeClosedError("the runtime is closed; load the checkpoint again")
        if os.getpid() != self._pid:
            # Thread pools and CUDA contexts do not survive a fork.
            raise ForwardError(
                "this session was opened before the process forked; load the checkpoint in the "
                "child, for instance in a post-fork hook of the server"
            )
        if batch.parallel != self._info.parallel:
            raise ForwardError("the batch and the graph have different option layouts")
        try:
            options, actions = session.run(self._outputs, batch.feed())
        except Exception as exc:
            raise ForwardError(
                f"ONNX Runtime failed on a batch of {batch.input_ids.shape[0]} x "
                f"{batch.input_ids.shape[1]} tokens: {exc}"
            ) from exc
        return Logits(np.asarray(options, dtype=np.float32), np.asarray(actions, dtype=np.float32))

    def close(self) -> None:
        # A pass in flight holds its own reference and ends undisturbed.
        self._session = None


def conflicting_packages() -> list[str]:
    """Installed distributions that all own the `onnxruntime` folder; more than one is a fault."""
    names = ("onnxruntime", "onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino")
    found = []
    for name in names:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return found


def _threads(options: OrtOptions) -> int:
    if options.threads is None:
        return usable_cpus()
    if type(options.threads) is not int or options.threads < 1:
        raise InvalidRequestError(
            f"threads must be a positive whole number, got {options.threads!r}"
        )
    return options.threads


def _providers(device: Device, options: OrtOptions) -> list[Provider]:
    if options.providers is None:
        available = onnxruntime.get_available_providers()
        return providers_for(device, available, options.provider_options)
    given = [(each, {}) if isinstance(each, str) else each for each in options.providers]
    return [(name, {**own, **options.provider_options.get(name, {})}) for name, own in given]


def _session_options(options: OrtOptions, threads: int) -> SessionOptions:
    if isinstance(options.session_options, onnxruntime.SessionOptions):
        return options.session_options
    made = onnxruntime.SessionOptions()
    made.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    made.intra_op_num_threads = threads
    made.inter_op_num_threads = 1
    made.log_severity_level = 3  # a missing provider is reported by our own error
    made.add_session_config_entry("session.intra_op.allow_spinning", str(int(options.spinning)))
    if options.session_options is not None:
        options.session_options(made)
    return made


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
    missing = [name for name, _ in asked if name not in onnxruntime.get_available_providers()]
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


def _names(nodes: Sequence[Any]) -> dict[str, int]:
    return {node.name: index for index, node in enumerate(nodes)}


def _check_contract(graph: Path, session: Any) -> bool:
    """Check names, types and ranks; return whether the graph has the parallel layout."""
    inputs = {node.name: node for node in session.get_inputs()}
    outputs = {node.name: node for node in session.get_outputs()}
    parallel = any(spec.name in inputs for spec in PARALLEL_INPUTS)
    expected = (*INPUTS, *PARALLEL_INPUTS) if parallel else INPUTS
    faults = [
        *_faults(expected, inputs, "input"),
        *_faults(OUTPUTS, outputs, "output"),
        *(f"unknown input {name!r}" for name in inputs.keys() - {spec.name for spec in expected}),
    ]
    if faults:
        raise GraphContractError(
            f"{graph} is not a decision graph: {'; '.join(faults)}. Export the checkpoint with "
            "drut export"
        )
    return parallel


def _faults(specs: Sequence[TensorSpec], nodes: Mapping[str, Any], kind: str) -> list[str]:
    faults = []
    for spec in specs:
        node = nodes.get(spec.name)
        if node is None:
            faults.append(f"no {kind} {spec.name!r}")
        elif node.type != _ORT_TYPES[spec.dtype] or len(node.shape) != len(spec.axes):
            faults.append(
                f"{kind} {spec.name!r} is {node.type} of rank {len(node.shape)}, not {spec.dtype} "
                f"of rank {len(spec.axes)}"
            )
    return faults


__all__ = ["CPU", "CUDA", "TENSORRT", "OrtOptions", "OrtRuntime", "conflicting_packages"]
