"""From a checkpoint directory to one more version in a model repository, or nothing at all."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import onnx_ir as ir

from drut.checkpoint.bundle import GRAPH_NAME, Bundle, read_bundle
from drut.checkpoint.config import CONFIG_NAME, TOKENIZER_DIR
from drut.checkpoint.opened import Checkpoint, open_checkpoint
from drut.checkpoint.source import LICENSE_FILES
from drut.checkpoint.tokenizer import (
    TOKENIZER_CONFIG_NAME,
    TOKENIZER_NAME,
    CheckpointTokenizer,
)
from drut.decoding.labelled import Labelled
from drut.errors import ExportError, GraphContractError
from drut.runtimes.base import Runtime
from drut_export.calibration_check import compare_calibration, read_lines
from drut_export.canonical import make_canonical
from drut_export.checkpoint_loading import load_model
from drut_export.encoders import learned_positions
from drut_export.graph import INLINE_BYTES, build_graph, save_graph
from drut_export.licence import licence_of
from drut_export.manifest import make_manifest, write_manifest
from drut_export.modeling import DecisionModel
from drut_export.pbtxt import CONFIG_PBTXT, Target, render_pbtxt
from drut_export.precision import Precision, check_combination, get_precision
from drut_export.publishing import check_target, publish, staging_directory
from drut_export.report import write_report
from drut_export.torch_reference import TorchRuntime
from drut_export.trial_batches import ModelFacts
from drut_export.trial_probe import MEASURED, Probe
from drut_export.trial_texts import text_cases
from drut_export.triton_files import decision_directory, refuse_decision, write_triton_files
from drut_export.triton_releases import format_for
from drut_export.verifier import engine_of, open_verifier
from drut_export.verify import verify
from drut_export.verify_report import VerifyReport

TOKENIZER_FILES: Final = (TOKENIZER_NAME, TOKENIZER_CONFIG_NAME, "special_tokens_map.json")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What to export as what.

    Args:
        directory: the checkpoint.
        name: of the bundle; letters, digits, dot, underscore and dash.
        repository: the model repository, made if it is not there.
        precision: a name from `drut_export.precision.PRECISIONS`.
        version: number of the bundle's version, by default the next free one.
        source: where the checkpoint came from, for the manifest; by default the directory's name.
        revision: the source's commit, for the manifest.
        license_directory: where LICENSE, NOTICE and README.md lie, by default with the checkpoint.
        license: of the weights, for the manifest; by default what those files say.
        made_for: where the graph has to run, `triton:YY.MM`; by default in a present ONNX Runtime.
        labelled: JSON Lines of labelled data, in the format of `drut.decoding.labelled`, to compare
            the calibration of checkpoint and graph on.
        inline_bytes: weights beyond this go into a second file beside the graph.
        target: where Triton runs the graph.
    """

    directory: Path
    name: str
    repository: Path
    precision: str = "fp32"
    version: int | None = None
    source: str | None = None
    revision: str | None = None
    license_directory: Path | None = None
    license: str | None = None
    made_for: str | None = None
    labelled: Path | None = None
    inline_bytes: int = INLINE_BYTES
    target: Target = "cpu"


@dataclass(frozen=True, slots=True)
class _Opened:
    """What was read before anything is made."""

    checkpoint: Checkpoint
    model: DecisionModel
    labelled: list[Labelled] | None


def export_checkpoint(request: ExportRequest, *, progress: Progress | None = None) -> Bundle:
    """Export, verify and publish one checkpoint.

    The version appears complete or not at all: it is built beside its place, on the same file
    system, and moved there in one rename after the graph has been verified.

    Args:
        request: what to export as what.
        progress: told in one line what happens next.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        VerificationError: the graph does not answer like the checkpoint.
        ExportError: the bundle cannot be made or written.
    """
    say = progress or _say_nothing
    check_combination(request.precision, request.target)
    form = format_for(request.made_for)
    lines = read_lines(request.labelled) if request.labelled else None
    check_target(request.repository, request.name, request.version)
    refuse_decision(request.repository / request.name)
    decision_directory(request.repository / request.name)
    opened = _open(request, lines, say)
    try:
        with staging_directory(request.repository) as staging:
            staged = staging / request.name
            version = staged / "unnumbered"
            version.mkdir(parents=True)
            made = _make_graph(opened, request, version, say)
            report = made.report
            say("writing the bundle")
            _copy_files(request, version)
            write_report(
                version,
                report,
                name=request.name,
                precision=request.precision,
                notes=(_engine_note(made.engine), *_left_out_notes(made.left_out)),
            )
            identity = {
                **_identity(request),
                "verified_with": made.engine,
                "left_out": list(made.left_out),
                "max_positions": learned_positions(opened.model.encoder),
            }
            manifest = make_manifest(version, identity, opened.checkpoint.config, report, form)
            published = publish(
                staged,
                request.repository / request.name,
                request.version,
                lambda place, number: _number(request, {**manifest, "version": number}, place),
            )
    except OSError as exc:
        raise ExportError(
            f"could not write {request.name} into {request.repository} ({exc}); nothing was left "
            "behind. Make room or choose another repository"
        ) from exc
    _write_for_triton(published, request)
    return read_bundle(published)


def _write_for_triton(published: Path, request: ExportRequest) -> None:
    try:
        write_triton_files(published.parent, target=request.target)
    except OSError as exc:
        raise ExportError(
            f"{published} is complete, but the files beside it that Triton reads could not be "
            f"written ({exc}); write them with: drut repository write {published.parent}"
        ) from exc


def _number(request: ExportRequest, manifest: dict[str, Any], version: Path) -> None:
    """Write what depends on the version's number."""
    write_manifest(version, manifest)
    pbtxt = render_pbtxt(request.name, manifest, target=request.target)
    (version.parent / CONFIG_PBTXT).write_text(pbtxt, encoding="utf-8")


def _open(request: ExportRequest, lines: list[Labelled] | None, say: Progress) -> _Opened:
    checkpoint = open_checkpoint(request.directory, model_id=request.name)
    say(f"reading {request.source or request.directory}")
    model = load_model(request.directory, checkpoint.config)
    _check_vocabulary(model, checkpoint.tokenizer)
    return _Opened(checkpoint, model, lines)


@dataclass(frozen=True, slots=True)
class _Made:
    """A graph in its place, and what is known about it."""

    report: VerifyReport
    engine: dict[str, str]  # what the verification ran it on
    left_out: tuple[str, ...]  # weights that compute in float32 while others do not


def _make_graph(opened: _Opened, request: ExportRequest, directory: Path, say: Progress) -> _Made:
    precision = get_precision(request.precision)
    say("tracing the model")
    graph = build_graph(opened.model, format_for(request.made_for))
    left_out = _rewrite(opened, graph, precision, directory, say)
    make_canonical(graph)
    say(f"writing the graph: {precision.summary}")
    save_graph(graph, directory, inline_bytes=request.inline_bytes)
    del graph
    runtime = open_verifier(directory / GRAPH_NAME, precision.name, request.target)
    try:
        return _Made(_verified(opened, runtime, request, say), engine_of(runtime), left_out)
    finally:
        runtime.close()


def _rewrite(
    opened: _Opened, graph: ir.Model, precision: Precision, directory: Path, say: Progress
) -> tuple[str, ...]:
    if not precision.measures:
        return precision.rewrite(graph, None)
    say("measuring what the precision does to answers")
    checkpoint, facts = opened.checkpoint, model_facts(opened.model)
    texts = text_cases(checkpoint.config, checkpoint.tokenizer, positions=facts.positions)
    cases = [case for case in texts if case.title in MEASURED]
    with TemporaryDirectory(dir=directory.parent) as trials:
        probe = Probe(TorchRuntime(opened.model), cases, graph, Path(trials))
        return precision.rewrite(graph, probe)


def _engine_note(engine: Mapping[str, str]) -> str:
    return (
        f"Verified with {engine['name']} {engine['version']}, computing in {engine['computing']}."
    )


def _left_out_notes(names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"Left out, in float32: {', '.join(names)}."


def _verified(
    opened: _Opened, graph: Runtime, request: ExportRequest, say: Progress
) -> VerifyReport:
    checkpoint, reference = opened.checkpoint, TorchRuntime(opened.model)
    facts = model_facts(opened.model)
    report = verify(
        reference,
        graph,
        facts,
        get_precision(request.precision).tolerance,
        texts=text_cases(checkpoint.config, checkpoint.tokenizer, positions=facts.positions),
        progress=say,
    )
    if opened.labelled is None or request.labelled is None:
        return report
    name = request.labelled.name
    say(f"asking about the labelled data of {name}")
    return replace(
        report,
        calibration=compare_calibration(reference, graph, checkpoint, opened.labelled, name=name),
    )


def model_facts(model: DecisionModel) -> ModelFacts:
    """What batches made up for this model depend on."""
    config: Any = model.encoder.config
    return ModelFacts(
        vocabulary=int(config.vocab_size),
        parallel=model.parallel,
        window=getattr(config, "local_attention", None),
        positions=getattr(config, "max_position_embeddings", None),
    )


def _check_vocabulary(model: DecisionModel, tokenizer: CheckpointTokenizer) -> None:
    known = model_facts(model).vocabulary
    if tokenizer.vocab_size > known:
        raise GraphContractError(
            f"the tokenizer has {tokenizer.vocab_size} ids, the encoder only {known}; "
            "they do not belong together"
        )


def _identity(request: ExportRequest) -> dict[str, Any]:
    return {
        "name": request.name,
        "version": request.version,
        "source": request.source or request.directory.name,
        "revision": request.revision,
        "license": request.license or licence_of(request.license_directory or request.directory),
        "precision": request.precision,
        "target": request.target,
    }


def _copy_files(request: ExportRequest, version: Path) -> None:
    shutil.copyfile(request.directory / CONFIG_NAME, version / CONFIG_NAME)
    (version / TOKENIZER_DIR).mkdir()
    for name in TOKENIZER_FILES:
        found = request.directory / TOKENIZER_DIR / name
        if found.is_file():
            shutil.copyfile(found, version / TOKENIZER_DIR / name)
    for pattern in LICENSE_FILES:
        for found in (request.license_directory or request.directory).glob(pattern):
            if found.is_file():
                shutil.copyfile(found, version / found.name)


def _say_nothing(line: str) -> None:
    """Progress nobody asked for."""
