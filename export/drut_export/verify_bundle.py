"""Repeat the verification of a published bundle: here or on a server, with or without weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Final

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import Checkpoint, open_bundle, open_checkpoint
from drut.errors import VerificationError
from drut.runtimes.base import Runtime
from drut_export.calibration_check import compare_calibration, read_lines
from drut_export.pieces import InPieces
from drut_export.precision import get_precision
from drut_export.tolerance import Tolerance
from drut_export.trial_batches import ModelFacts, made_up_cases
from drut_export.trial_texts import text_cases
from drut_export.verifier import reopen_verifier
from drut_export.verify import Progress, compare
from drut_export.verify_report import VerifyReport

ROUNDING: Final = "fp32"
"""Precision whose tolerance holds between two runs of one graph that computes in float32."""

FLOAT32: Final = ("fp32", "int8-weights")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is compared with what.

    Args:
        checkpoint: directory of the checkpoint, run in torch; None: the bundle's own graph, run on
            this machine's CPU, is what a server is compared with.
        serve: opens what runs the bundle elsewhere; None: its graph runs here.
        labelled: JSON Lines of labelled data to compare the calibration on.
    """

    checkpoint: Path | None = None
    serve: Callable[[Checkpoint], Runtime] | None = None
    labelled: Path | None = None


def verify_bundle(
    bundle: Bundle, wanted: Wanted, *, progress: Progress | None = None
) -> VerifyReport:
    """Compare a bundle's graph as the export did: the same kinds of rows, the same figures.

    Without a checkpoint the tolerance is that of float rounding, as far as the graph computes in
    float32: it is the same graph twice.

    Args:
        bundle: the bundle.
        wanted: what is compared with what; at least one of `checkpoint` and `serve`.
        progress: told each batch before it runs.

    Returns:
        The figures; what exceeds the tolerance is among its problems.

    Raises:
        CheckpointError: the checkpoint or the graph cannot be read.
        ExportError: the bundle's precision is unknown here.
        RuntimeUnavailableError: the server cannot be reached, or serves something else.
        VerificationError: it is another checkpoint, or an output is not finite or not masked.
    """
    tolerance = _tolerance(bundle, wanted)
    opened = open_bundle(bundle)
    if wanted.checkpoint is not None:
        _check_kinship(bundle, open_checkpoint(wanted.checkpoint))
    lines = read_lines(wanted.labelled) if wanted.labelled else None
    with _reference(opened, wanted) as (reference, facts), _graph(opened, wanted) as graph:
        texts = text_cases(opened.config, opened.tokenizer, positions=facts.positions)
        cases = chain(made_up_cases(facts), texts)
        report = compare(reference, graph, cases, tolerance, progress=progress)
        if lines is None or wanted.labelled is None:
            return report
        name = wanted.labelled.name
        figures = compare_calibration(reference, graph, opened, lines, name=name)
        return replace(report, calibration=figures)


def _tolerance(bundle: Bundle, wanted: Wanted) -> Tolerance:
    same_graph = wanted.checkpoint is None and bundle.precision in FLOAT32
    return get_precision(ROUNDING if same_graph else bundle.precision).tolerance


@contextmanager
def _reference(opened: Checkpoint, wanted: Wanted) -> Iterator[tuple[Runtime, ModelFacts]]:
    if wanted.checkpoint is None:
        with _local(opened) as runtime:
            yield runtime, _facts(opened)
        return
    # Imported here: a comparison of two runs of the graph needs no torch.
    from drut_export.checkpoint_loading import load_model
    from drut_export.repository import model_facts
    from drut_export.torch_reference import TorchRuntime

    model = load_model(wanted.checkpoint, opened.config)
    yield TorchRuntime(model), model_facts(model)


@contextmanager
def _graph(opened: Checkpoint, wanted: Wanted) -> Iterator[Runtime]:
    if wanted.serve is None:
        with _local(opened) as local:
            yield local
        return
    served = wanted.serve(opened)
    try:
        yield InPieces(served)
    finally:
        served.close()


@contextmanager
def _local(opened: Checkpoint) -> Iterator[Runtime]:
    bundle = opened.bundle
    assert bundle is not None
    runtime = reopen_verifier(bundle)
    try:
        yield runtime
    finally:
        runtime.close()


def _facts(opened: Checkpoint) -> ModelFacts:
    return ModelFacts(
        vocabulary=opened.tokenizer.vocab_size,
        parallel=opened.config.parallel,
        positions=opened.bundle.max_positions if opened.bundle else None,
    )


def _check_kinship(bundle: Bundle, checkpoint: Checkpoint) -> None:
    found = {
        "tokenizer_sha256": checkpoint.tokenizer.digest,
        "option_layout": checkpoint.config.option_layout,
        "actions": checkpoint.config.actions,
    }
    other = [
        f"{key} {bundle.manifest[key]} in the bundle, {value} in the checkpoint"
        for key, value in found.items()
        if key in bundle.manifest and bundle.manifest[key] != value
    ]
    if other:
        raise VerificationError(
            f"bundle {bundle.name!r} version {bundle.version} was not made from "
            f"{checkpoint.directory}: {'; '.join(other)}. Give the checkpoint named in its manifest"
        )
