"""From a checkpoint directory to one more version in a model repository, or nothing at all."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from drut.checkpoint.bundle import GRAPH_NAME, Bundle, read_bundle
from drut.checkpoint.config import CONFIG_NAME, TOKENIZER_DIR, read_config
from drut.checkpoint.source import LICENSE_FILES
from drut.checkpoint.tokenizer import (
    TOKENIZER_CONFIG_NAME,
    TOKENIZER_NAME,
    CheckpointTokenizer,
    read_tokenizer,
)
from drut.errors import ExportError, GraphContractError
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export.canonical import make_canonical
from drut_export.checkpoint_loading import load_model
from drut_export.encoders import learned_positions
from drut_export.graph import build_graph, save_graph
from drut_export.manifest import make_manifest, write_manifest
from drut_export.modeling import DecisionModel
from drut_export.pbtxt import CONFIG_PBTXT, render_pbtxt
from drut_export.precision import Precision, get_precision
from drut_export.publishing import check_target, publish, staging_directory
from drut_export.report import write_report
from drut_export.torch_reference import TorchRuntime
from drut_export.trial_batches import ModelFacts, TrialCase
from drut_export.trial_texts import text_cases
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
        license_directory: where LICENSE and NOTICE files lie, by default with the checkpoint.
    """

    directory: Path
    name: str
    repository: Path
    precision: str = "fp32"
    version: int | None = None
    source: str | None = None
    revision: str | None = None
    license_directory: Path | None = None


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
    precision = get_precision(request.precision)
    check_target(request.repository, request.name, request.version)
    config = read_config(request.directory)
    tokenizer = read_tokenizer(request.directory)
    say(f"reading {request.source or request.directory}")
    model = load_model(request.directory, config)
    _check_vocabulary(model, tokenizer)
    try:
        with staging_directory(request.repository) as staging:
            staged = staging / request.name
            version = staged / "unnumbered"
            version.mkdir(parents=True)
            facts = model_facts(model)
            texts = text_cases(config, tokenizer, positions=facts.positions)
            report = _make_graph(model, precision, version, texts, say)
            say("writing the bundle")
            _copy_files(request, version)
            write_report(version, report, name=request.name, precision=request.precision)
            identity = {
                **_identity(request),
                "max_positions": learned_positions(model.encoder),
            }
            manifest = make_manifest(version, identity, config, report)
            pbtxt = render_pbtxt(request.name, parallel=config.parallel, actions=config.actions)
            (staged / CONFIG_PBTXT).write_text(pbtxt, encoding="utf-8")
            published = publish(
                staged,
                request.repository / request.name,
                request.version,
                lambda place, number: write_manifest(place, {**manifest, "version": number}),
            )
    except OSError as exc:
        raise ExportError(
            f"could not write {request.name} into {request.repository} ({exc}); nothing was left "
            "behind. Make room or choose another repository"
        ) from exc
    return read_bundle(published)


def _make_graph(
    model: DecisionModel,
    precision: Precision,
    directory: Path,
    texts: Iterable[TrialCase],
    say: Progress,
) -> VerifyReport:
    say("tracing the model")
    graph = build_graph(model)
    precision.rewrite(graph)
    make_canonical(graph)
    say(f"writing the graph: {precision.summary}")
    save_graph(graph, directory)
    del graph
    runtime = OrtRuntime(directory / GRAPH_NAME, OrtOptions(device="cpu"), precision=precision.name)
    try:
        return verify(
            TorchRuntime(model),
            runtime,
            model_facts(model),
            precision.tolerance,
            texts=texts,
            progress=say,
        )
    finally:
        runtime.close()


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
        "precision": request.precision,
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
