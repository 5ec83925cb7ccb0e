"""Repeat the verification of a published bundle against the checkpoint it was made from."""

from itertools import chain
from pathlib import Path

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.config import CheckpointConfig, read_config
from drut.checkpoint.tokenizer import CheckpointTokenizer, read_tokenizer
from drut.errors import VerificationError
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut_export.checkpoint_loading import load_model
from drut_export.precision import get_precision
from drut_export.repository import model_facts
from drut_export.torch_reference import TorchRuntime
from drut_export.trial_batches import made_up_cases
from drut_export.trial_texts import text_cases
from drut_export.verify import Progress, compare
from drut_export.verify_report import VerifyReport


def verify_bundle(
    bundle: Bundle, checkpoint: Path, *, progress: Progress | None = None
) -> VerifyReport:
    """Compare a bundle's graph with a checkpoint, as the export did.

    Args:
        bundle: the bundle.
        checkpoint: directory of the checkpoint.
        progress: told each batch before it runs.

    Returns:
        The figures; what exceeds the precision's tolerance is among its problems.

    Raises:
        CheckpointError: the checkpoint or the graph cannot be read.
        ExportError: the bundle's precision is unknown here.
        VerificationError: it is another checkpoint, or an output is not finite or not masked.
    """
    precision = get_precision(bundle.precision)
    config = read_config(checkpoint)
    tokenizer = read_tokenizer(checkpoint)
    _check_kinship(bundle, config, tokenizer, checkpoint)
    model = load_model(checkpoint, config)
    facts = model_facts(model)
    texts = text_cases(config, tokenizer, positions=facts.positions)
    graph = OrtRuntime(bundle.graph, OrtOptions(device="cpu"), precision=bundle.precision)
    try:
        return compare(
            TorchRuntime(model),
            graph,
            chain(made_up_cases(facts), texts),
            precision.tolerance,
            progress=progress,
        )
    finally:
        graph.close()


def _check_kinship(
    bundle: Bundle, config: CheckpointConfig, tokenizer: CheckpointTokenizer, checkpoint: Path
) -> None:
    found = {
        "tokenizer_sha256": tokenizer.digest,
        "option_layout": config.option_layout,
        "actions": config.actions,
    }
    other = [
        f"{key} {bundle.manifest[key]} in the bundle, {value} in the checkpoint"
        for key, value in found.items()
        if key in bundle.manifest and bundle.manifest[key] != value
    ]
    if other:
        raise VerificationError(
            f"bundle {bundle.name!r} version {bundle.version} was not made from {checkpoint}: "
            f"{'; '.join(other)}. Give the checkpoint named in its manifest"
        )
