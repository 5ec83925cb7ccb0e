"""The tensor contract between collating, the graph and decoding.

One table for four users: the exporter names the graph's inputs and axes from it, the batch is fed
by it, the runtimes check a graph against it, and Triton's ``config.pbtxt`` is generated from it.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from drut.schema import QuestionUsage

Int64: TypeAlias = NDArray[np.int64]
Bool: TypeAlias = NDArray[np.bool_]
Float32: TypeAlias = NDArray[np.float32]


class TensorSpec(NamedTuple):
    """One input or output of the graph: NumPy dtype name and named axes, all of them dynamic."""

    name: str
    dtype: str
    axes: tuple[str, ...]


INPUTS: Final = (
    TensorSpec("input_ids", "int64", ("rows", "tokens")),
    TensorSpec("attention_mask", "int64", ("rows", "tokens")),
    TensorSpec("marker_pos", "int64", ("rows", "options")),
    TensorSpec("marker_mask", "bool", ("rows", "options")),
    TensorSpec("qtype", "int64", ("rows",)),
)
"""Inputs of every decision graph, in order."""

PARALLEL_INPUTS: Final = (
    TensorSpec("position_ids", "int64", ("rows", "tokens")),
    TensorSpec("option_ids", "int64", ("rows", "tokens")),
)
"""Further inputs of a graph whose checkpoint has ``option_layout: "parallel"``."""

OUTPUTS: Final = (
    TensorSpec("logits", "float32", ("rows", "options")),
    TensorSpec("act_logits", "float32", ("rows", "actions")),
)
"""Outputs. ``actions`` is fixed per checkpoint: the number of ``act_costs`` plus one."""

MASKED_LOGIT: Final = -1e4
"""Value of ``logits`` where ``marker_mask`` is false."""

QTYPES: Final = {"choice": 0, "score": 1, "noul": 2}
"""Question type to the value of ``qtype``."""


def graph_inputs(*, parallel: bool) -> tuple[TensorSpec, ...]:
    """Inputs of a graph with the given option layout, in order."""
    return INPUTS + PARALLEL_INPUTS if parallel else INPUTS


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """One (state, question) pair as the model reads it."""

    ids: Int64  # [tokens]
    markers: Int64  # [options], in slot order
    qtype: int
    usage: QuestionUsage
    position_ids: Int64 | None = None  # [tokens], parallel layout only
    option_ids: Int64 | None = None  # [tokens], parallel layout only


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows padded to one rectangle. Field names are the graph's input names."""

    input_ids: Int64  # [rows, tokens]
    attention_mask: Int64  # [rows, tokens], 1 = real token
    marker_pos: Int64  # [rows, options], 0 where marker_mask is false
    marker_mask: Bool  # [rows, options]
    qtype: Int64  # [rows]
    position_ids: Int64 | None = None  # [rows, tokens], parallel layout only
    option_ids: Int64 | None = None  # [rows, tokens], parallel layout only

    def __len__(self) -> int:
        return len(self.input_ids)

    @property
    def parallel(self) -> bool:
        """Whether the rows carry the parallel option layout."""
        return self.position_ids is not None

    def feed(self) -> dict[str, NDArray[np.generic]]:
        """Arrays by graph input name, in the graph's order."""
        return {
            spec.name: getattr(self, spec.name) for spec in graph_inputs(parallel=self.parallel)
        }


class Logits(NamedTuple):
    """What a forward pass returns; row i answers row i of the batch."""

    options: Float32  # [rows, options]
    actions: Float32  # [rows, actions]
