"""A stand-in bundle whose token budget has room for the presets."""

import json
import shutil
import tempfile
from pathlib import Path

from bundles import write_bundle
from drut.checkpoint.config import CONFIG_NAME, TOKENIZER_DIR
from tiny_checkpoint import TINY

VERIFICATION = {"rows": 120, "max_probability_difference": 1.5e-6, "equal_choices": 1.0}


def write_roomy_bundle(repository: Path, name: str = "starter", version: int = 1) -> Path:
    """Write `<repository>/<name>/<version>/` and return it."""
    config = json.loads((TINY / CONFIG_NAME).read_text(encoding="utf-8"))
    # The tiny tokenizer spends a token on every other letter.
    config |= {"max_len": 1024, "head_max_len": 768}
    with tempfile.TemporaryDirectory() as made:
        source = Path(made)
        (source / CONFIG_NAME).write_text(json.dumps(config), encoding="utf-8")
        shutil.copytree(TINY / TOKENIZER_DIR, source / TOKENIZER_DIR)
        return write_bundle(repository, name, version, source=source, verification=VERIFICATION)
