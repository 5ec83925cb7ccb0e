"""From the checkpoint to the bundle that ships: `model_repository/starter/`, version 1.

There is only one shipped version: a bundle that lies there already is replaced, but not before
the new one has been exported and verified.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Final

from drut.checkpoint.bundle import Bundle, read_bundle
from drut_export.repository import ExportRequest, export_checkpoint
from starter.bank import HERE
from starter.finish import CHECKPOINT_DIR
from starter.minilm import HUB_ID

NAME: Final = "starter"
VERSION: Final = 1
PRECISION: Final = "int8-weights"
MADE_FOR: Final = "triton:24.10"
"""It shows Triton too, and no image is known to read the present format."""

SOURCE: Final = f"starter (trained from {HUB_ID})"
REPOSITORY: Final = HERE.parent / "model_repository"


def export(checkpoint: Path = CHECKPOINT_DIR, repository: Path = REPOSITORY) -> Bundle:
    """Export the checkpoint with its licences and put it in the place of the present bundle.

    Raises:
        DrutError: the checkpoint cannot be exported; the present bundle stays.
    """
    repository.mkdir(parents=True, exist_ok=True)
    place = repository / NAME
    with tempfile.TemporaryDirectory(prefix=".starter-", dir=repository) as scratch:
        request = ExportRequest(
            directory=checkpoint,
            name=NAME,
            repository=Path(scratch),
            precision=PRECISION,
            version=VERSION,
            source=SOURCE,
            made_for=MADE_FOR,
        )
        export_checkpoint(request, progress=print)
        shutil.rmtree(place, ignore_errors=True)
        (Path(scratch) / NAME).rename(place)
    return read_bundle(place / str(VERSION))


def size(bundle: Bundle) -> int:
    """Bytes of all files of a bundle's version."""
    return sum(path.stat().st_size for path in bundle.directory.rglob("*") if path.is_file())


def main(arguments: list[str] | None = None) -> None:
    """Export and print the bundle's place and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=CHECKPOINT_DIR)
    parser.add_argument("--repository", type=Path, default=REPOSITORY)
    given = parser.parse_args(arguments)
    bundle = export(given.checkpoint, given.repository)
    print(f"{bundle.directory}: {size(bundle) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
