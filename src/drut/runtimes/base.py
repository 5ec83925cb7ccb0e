"""The contract of a runtime: one verb, its facts as data, and how to let go of it."""

from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from drut.tensors import Batch, Logits


@dataclass(frozen=True, slots=True)
class RuntimeInfo:
    """What runs, where it really runs, and what was asked for."""

    name: str  # "onnxruntime", "triton", "torch", "fake"
    device: str  # the effective device: "cpu", "cuda:0", ...
    requested_device: str = "auto"
    precision: str = "fp32"
    parallel: bool = False  # whether the graph takes the parallel option layout
    actions: int | None = None  # width of the act head, None where the graph does not say
    batch_invariant: bool = True  # whether a row's answer is the same beside any other row
    length_invariant: bool = False  # where it is not: whether it is beside rows of equal length
    max_rows: int | None = None  # rows of one pass at most, None: any number
    concurrent_passes: int = 1  # passes that are worth having in flight at the same time
    details: dict[str, Any] = field(
        default_factory=dict
    )  # engine version, providers, threads, file


@runtime_checkable
class Runtime(Protocol):
    """Runs the graph of one checkpoint.

    `forward` is called from many threads at once; a runtime that cannot do that takes its own
    lock. It may pad a batch further, and returns exactly `len(batch)` rows. Constructors raise
    `RuntimeUnavailableError`; `forward` raises `ForwardError`. A runtime never swaps itself for
    another one.
    """

    @property
    def info(self) -> RuntimeInfo:
        """Facts about what runs."""
        ...

    def forward(self, batch: Batch) -> Logits:
        """Run one batch; row i of the result answers row i."""
        ...

    def close(self) -> None:
        """Free the session; later calls of `forward` raise `RuntimeClosedError`."""
        ...
