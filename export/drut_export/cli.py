"""`python -m drut_export`, and what `drut export` calls."""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.config import read_json_object
from drut.checkpoint.source import SourceDirectory, fetch_checkpoint
from drut.errors import DrutError
from drut.settings import default_digests, default_repository, default_revision
from drut_export.pbtxt import TARGETS
from drut_export.precision import PRECISIONS, check_combination
from drut_export.repository import ExportRequest, Progress, export_checkpoint
from drut_export.triton_releases import known_names

FAILED: Final = 1
INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Export one checkpoint; print the bundle's path, or its manifest with `--json`.

    Args:
        argv: arguments without the program's name, by default those of the process.

    Returns:
        0 exported, 1 failed, 130 interrupted. Wrong usage ends in `SystemExit(2)`.
    """
    arguments = make_parser().parse_args(argv)
    try:
        with _ending_tidily() as say:
            bundle = _export(arguments, say)
    except DrutError as exc:
        _tell(f"drut export: {exc}")
        return FAILED
    except KeyboardInterrupt:
        _tell("drut export: interrupted, nothing was left behind")
        return INTERRUPTED
    sys.stdout.write(f"{_json(bundle) if arguments.json else bundle.directory}\n")
    return 0


def make_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="drut export",
        description="Export a decision checkpoint to ONNX, verify it and put it into a model "
        "repository that drut and Triton serve from.",
    )
    add = parser.add_argument
    add("source", metavar="SOURCE", help="checkpoint directory or hub repository")
    add("--name", help="name of the bundle (default: the last part of the subfolder or source)")
    add("--repository", type=Path, help="model repository (default: DRUT_MODEL_REPOSITORY)")
    add("--precision", choices=list(PRECISIONS), default="fp32", help=_precisions())
    add("--target", choices=TARGETS, default="cpu", help="where the graph runs (default: cpu)")
    add("--version", type=int, help="version number (default: the next free one)")
    add("--for", dest="made_for", metavar="NAME", help=_targets())
    add("--license", help="licence of the weights (default: that of the model card or LICENSE)")
    add(
        "--labelled",
        type=Path,
        metavar="FILE",
        help="JSON Lines of labelled data as for drut calibrate; the report tells the calibration "
        "error of checkpoint and graph on it",
    )
    add("--subfolder", help="directory of the checkpoint inside the source")
    add("--revision", help="commit, tag or branch on the hub, or 'reviewed' (or DRUT_REVISION)")
    add(
        "--sha256",
        type=Path,
        metavar="FILE",
        help="JSON file of relative path to SHA-256, checked "
        "before anything is parsed (or DRUT_SHA256_DIGESTS)",
    )
    add("--json", action="store_true", help="print the manifest instead of the bundle's path")
    return parser


def _export(arguments: argparse.Namespace, say: Progress) -> Bundle:
    check_combination(arguments.precision, arguments.target)  # before anything is downloaded
    found = fetch_checkpoint(
        arguments.source,
        subfolder=arguments.subfolder,
        revision=arguments.revision or default_revision(),
        expected_sha256=read_json_object(arguments.sha256)
        if arguments.sha256
        else default_digests(),
    )
    request = ExportRequest(
        directory=found.path,
        name=arguments.name or _name(arguments),
        repository=arguments.repository or default_repository(),
        precision=arguments.precision,
        version=arguments.version,
        # A bundle travels: it names a hub repository, but no directory of this machine.
        source=None if Path(arguments.source).expanduser().exists() else found.display,
        revision=found.revision,
        license_directory=_top(found, arguments.subfolder),
        license=arguments.license,
        made_for=arguments.made_for,
        labelled=arguments.labelled,
        target=arguments.target,
    )
    return export_checkpoint(request, progress=say)


def _name(arguments: argparse.Namespace) -> str:
    """`multilingual` of `--subfolder multilingual`, else `laya` of `convaiinnovations/laya`."""
    return Path(arguments.subfolder or Path(arguments.source).expanduser().resolve()).name


def _top(found: SourceDirectory, subfolder: str | None) -> Path:
    """The directory the subfolder is in: licences lie there."""
    depth = len(Path(subfolder).parts) if subfolder else 0
    return found.path.parents[depth - 1] if depth else found.path


def _json(bundle: Bundle) -> str:
    return json.dumps({"path": str(bundle.directory), **bundle.manifest}, ensure_ascii=False)


def _precisions() -> str:
    listed = "; ".join(f"{one.name}: {one.summary}" for one in PRECISIONS.values())
    return f"{listed} (default: fp32)"


def _targets() -> str:
    return f"where the graph has to run: {known_names()} (default: a present ONNX Runtime)"


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def _ending_tidily() -> Iterator[Progress]:
    """Let SIGTERM unwind like Ctrl-C, so that the half-made bundle is removed.

    Yields what tells progress: an interrupt that some library's callback swallowed is raised again
    there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield _tell
        return
    ending = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        ending.set()
        raise KeyboardInterrupt

    def say(line: str) -> None:
        if ending.is_set():
            raise KeyboardInterrupt
        _tell(line)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield say
    finally:
        signal.signal(signal.SIGTERM, before)
