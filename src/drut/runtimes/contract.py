"""Is this the graph of a decision checkpoint? Asked of any engine that lists a graph's tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from drut.errors import ForwardError, GraphContractError
from drut.tensors import INPUTS, OUTPUTS, PARALLEL_INPUTS, TensorSpec


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output, as an engine describes it."""

    dtype: str  # NumPy name, or the engine's own where there is none
    rank: int


def check_ports(graph: Path, inputs: Mapping[str, Port], outputs: Mapping[str, Port]) -> bool:
    """Check names, types and ranks; return whether the graph has the parallel layout.

    Raises:
        GraphContractError: listing every difference.
    """
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


def forked() -> ForwardError:
    """Thread pools and device contexts do not survive a fork."""
    return ForwardError(
        "this session was opened before the process forked; load the checkpoint in the "
        "child, for instance in a post-fork hook of the server"
    )


def _faults(specs: Sequence[TensorSpec], ports: Mapping[str, Port], kind: str) -> list[str]:
    faults = []
    for spec in specs:
        port = ports.get(spec.name)
        if port is None:
            faults.append(f"no {kind} {spec.name!r}")
        elif port != Port(spec.dtype, len(spec.axes)):
            faults.append(
                f"{kind} {spec.name!r} is {port.dtype} of rank {port.rank}, not {spec.dtype} "
                f"of rank {len(spec.axes)}"
            )
    return faults
