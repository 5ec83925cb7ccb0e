"""Is a graph as well calibrated as its checkpoint? Answers to labelled questions, from both."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from drut.checkpoint.opened import Checkpoint
from drut.decoding.calibration import Calibration, calibration_of
from drut.decoding.fitting import Record, reliability
from drut.decoding.labelled import Labelled, read_labelled, records_of
from drut.errors import InvalidRequestError
from drut.pipeline import InferenceOptions, Pipeline
from drut.runtimes.base import Runtime
from drut.schema import QuestionId, State
from drut.tensors import Float32
from drut_export.verify_report import Calibrated, CalibrationFigures


def read_lines(path: Path) -> list[Labelled]:
    """Read and check a file of labelled data, in the format of `drut calibrate`.

    Raises:
        InvalidRequestError: it cannot be read, a line cannot be used, or there is none.
    """
    try:
        lines = list(read_labelled(path))
    except OSError as exc:
        raise InvalidRequestError(f"{path} cannot be read as labelled data: {exc}") from exc
    if not lines:
        raise InvalidRequestError(f"{path} has no labelled answers")
    return lines


def compare_calibration(
    reference: Runtime,
    graph: Runtime,
    checkpoint: Checkpoint,
    lines: Sequence[Labelled],
    *,
    name: str,
) -> CalibrationFigures:
    """Ask a graph and its reference about labelled data.

    Args:
        reference: usually the torch model.
        graph: the graph under test.
        checkpoint: settings and tokenizer of both.
        lines: of `read_lines`.
        name: of the file, for the report.

    Raises:
        DrutError: a line cannot be asked about; the message names file and line.
    """
    return CalibrationFigures(
        data=name,
        answers=sum(len(line.targets) for line in lines),
        checkpoint=_figures(reference, checkpoint, lines),
        graph=_figures(graph, checkpoint, lines),
    )


def _figures(runtime: Runtime, checkpoint: Checkpoint, lines: Sequence[Labelled]) -> Calibrated:
    in_force = calibration_of(checkpoint.config)
    pipeline = Pipeline(checkpoint, runtime, in_force)

    def ask(states: Sequence[State], questions: Mapping[str, Any]) -> Mapping[QuestionId, Float32]:
        return pipeline.logits(states, questions, InferenceOptions())

    records = list(records_of(lines, ask))
    return Calibrated(
        error_before=reliability(records, Calibration()).error,
        error=reliability(records, in_force).error,
        right=_right(records),
    )


def _right(records: Sequence[Record]) -> float:
    """Share of right answers."""
    return float(np.mean([int(record.logits.argmax()) == record.target for record in records]))
