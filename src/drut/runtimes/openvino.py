"""OpenVINO in this process, on the CPU: the way to bfloat16 where the processor computes in it."""

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

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
from drut.runtimes.base import RuntimeInfo
from drut.runtimes.contract import Port, check_ports, forked
from drut.runtimes.devices import parse_device
from drut.runtimes.threads import usable_cpus
from drut.tensors import OUTPUTS, Batch, Logits

try:
    # Its telemetry writes into the home directory and reports to its makers; without the package
    # OpenVINO falls back to a stub of its own.
    _telemetry = sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino
except ImportError as exc:
    raise MissingDependencyError("OpenVINO is not installed; install drut[openvino]") from exc
finally:
    if _telemetry is None:
        sys.modules.pop("openvino_telemetry", None)

_DTYPES: Final = {"i64": "int64", "boolean": "bool", "f32": "float32"}
_PRECISIONS: Final = {"bf16": "bf16"}  # of a bundle; any other one is computed in float32
_REFUSED: Final = ("int8",)
_NAMES: Final = {"bf16": "bf16", "f32": "fp32", "f16": "fp16"}


@dataclass(frozen=True, slots=True)
class OpenVinoOptions:
    """How the graph is compiled."""

    device: str = "auto"  # or cpu: there is no other
    threads: int | None = None  # of one pass; None: the usable processors
    streams: int = 1  # passes at the same time, each with its own threads
    properties: Mapping[str, Any] = field(default_factory=dict)  # OpenVINO's own, which win


class OpenVinoRuntime:
    """One compiled graph on the CPU.

    A graph of precision `bf16` is computed in bfloat16 where the processor can, and in float32
    with a warning where it cannot. Every other graph is computed in float32, but `int8`, which is
    made of ONNX Runtime's operators and is refused.

    Args:
        graph: the ONNX file; external data is looked for beside it.
        options: threads, streams, properties.
        precision: of the graph, as its manifest says.
        batch_invariant: whether a row's answer is the same beside any other, for `info`.

    Raises:
        DeviceUnavailableError: another device than the CPU is named.
        GraphContractError: the graph's inputs or outputs are not those of a decision graph.
        RuntimeUnavailableError: OpenVINO cannot load the file.
    """

    def __init__(
        self,
        graph: Path,
        options: OpenVinoOptions | None = None,
        *,
        precision: str = "fp32",
        batch_invariant: bool = True,
    ) -> None:
        options = options or OpenVinoOptions()
        device = parse_device(options.device)
        if device.kind not in ("auto", "cpu"):
            raise DeviceUnavailableError(
                f"device {device.name!r} was asked for, but the runtime openvino runs on the CPU; "
                "pass device='cpu', or runtime='onnxruntime' for that device"
            )
        if precision in _REFUSED:
            raise RuntimeUnavailableError(
                f"a bundle of precision {precision} was asked for, and its graph is made of "
                "operators of ONNX Runtime; use runtime='onnxruntime', or export with --precision "
                "bf16 or fp32 for OpenVINO"
            )
        threads = _threads(options.threads)
        core = openvino.Core()
        properties = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads * options.streams,
            "NUM_STREAMS": options.streams,
            "INFERENCE_PRECISION_HINT": _hint(core, precision),
            # Weights stored as int8 would otherwise be multiplied with rounded activations.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
            "ENABLE_CPU_PINNING": False,  # pinned threads of several agents share one core
            **options.properties,
        }
        # Compiling gives its thread a signal stack, which goes with the model: two models that end
        # in another order than they came leave a stale one, and the next signal is a crash.
        with ThreadPoolExecutor(1) as short_lived:
            model, self._compiled = short_lived.submit(_compile, core, graph, properties).result()
        parallel = check_ports(graph, _ports(model.inputs), _ports(model.outputs))
        self._outputs = [self._compiled.output(spec.name) for spec in OUTPUTS]
        self._idle: SimpleQueue[Any] = SimpleQueue()  # requests that nobody uses
        self._pid = os.getpid()
        self._closed = False
        used = self._compiled.get_property("INFERENCE_PRECISION_HINT").to_string()
        streams = int(self._compiled.get_property("NUM_STREAMS"))
        width = self._outputs[1].get_partial_shape()[1]
        self._info = RuntimeInfo(
            name="openvino",
            device="cpu",
            requested_device=device.name,
            precision=precision if precision not in _PRECISIONS else _NAMES.get(used, used),
            parallel=parallel,
            actions=width.get_length() if width.is_static else None,
            batch_invariant=batch_invariant,
            # Attention sums in blocks that depend on the padded length, and on nothing else.
            length_invariant=True,
            concurrent_passes=streams,
            details={
                "version": openvino.__version__,
                "graph": str(graph),
                "processor": core.get_property("CPU", "FULL_DEVICE_NAME"),
                "computing": _NAMES.get(used, used),
                "bfloat16": _has_bfloat16(core),
                "streams": streams,
                "threads": threads,
            },
        )

    @property
    def info(self) -> RuntimeInfo:
        return self._info

    def forward(self, batch: Batch) -> Logits:
        if self._closed:
            raise RuntimeClosedError("the runtime is closed; load the checkpoint again")
        if os.getpid() != self._pid:
            raise forked()
        if batch.parallel != self._info.parallel:
            raise ForwardError("the batch and the graph have different option layouts")
        with self._request() as request:
            try:
                found = request.infer(batch.feed(), share_inputs=True)
                # Copies: the request's own tensors are written again by its next pass.
                options, actions = (np.array(found[port], np.float32) for port in self._outputs)
            except Exception as exc:
                kind = OutOfMemoryError if _is_memory(exc) else ForwardError
                raise kind(
                    f"OpenVINO failed on a batch of {batch.input_ids.shape[0]} x "
                    f"{batch.input_ids.shape[1]} tokens: {exc}"
                ) from exc
        return Logits(options, actions)

    def close(self) -> None:
        # A pass in flight holds its own request, which holds the graph.
        self._closed = True
        self._compiled = None
        with_nothing: SimpleQueue[Any] = SimpleQueue()
        self._idle = with_nothing

    @contextmanager
    def _request(self) -> Iterator[Any]:
        """A request of one's own; there are as many as there were passes at the same time."""
        idle, compiled = self._idle, self._compiled
        try:
            request = idle.get_nowait()
        except Empty:
            if compiled is None:
                raise RuntimeClosedError("the runtime is closed; load it again") from None
            request = compiled.create_infer_request()
        try:
            yield request
        finally:
            idle.put(request)


def _hint(core: Any, precision: str) -> str:
    """The precision to compute in."""
    wanted = _PRECISIONS.get(precision, "f32")
    if wanted == "bf16" and not _has_bfloat16(core):
        warnings.warn(
            "this processor does not compute in bfloat16, so the bf16 graph is computed in "
            "float32: as exact, and no faster than an export with --precision fp32",
            RuntimeWarning,
            stacklevel=4,
        )
        return "f32"
    return wanted


def _has_bfloat16(core: Any) -> bool:
    return "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")


def _compile(core: Any, graph: Path, properties: Mapping[str, Any]) -> tuple[Any, Any]:
    try:
        model = core.read_model(str(graph))
        return model, core.compile_model(model, "CPU", dict(properties))
    except Exception as exc:
        raise RuntimeUnavailableError(
            f"OpenVINO {openvino.__version__} cannot load {graph}: {exc}. Use runtime="
            "'onnxruntime', or export with --precision fp32 or bf16"
        ) from exc


def _threads(threads: int | None) -> int:
    if threads is None:
        return usable_cpus()
    if type(threads) is not int or threads < 1:
        raise InvalidRequestError(f"threads must be a positive whole number, got {threads!r}")
    return threads


def _ports(ports: Any) -> dict[str, Port]:
    found = {}
    for port in ports:
        dtype = port.get_element_type().get_type_name()
        rank = port.get_partial_shape().rank
        length = rank.get_length() if rank.is_static else -1
        for name in port.get_names():
            found[name] = Port(_DTYPES.get(dtype, dtype), length)
    return found


def _is_memory(exc: Exception) -> bool:
    text = str(exc).lower()
    return isinstance(exc, MemoryError) or "bad_alloc" in text or "failed to allocate" in text
