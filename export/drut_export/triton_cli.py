"""`drut repository`: what Triton reads of exported bundles, written and checked."""

import argparse
import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from drut.checkpoint.bundle import read_version, split_version, version_directory
from drut.errors import DrutError, ExportError
from drut.loading import find_version
from drut.settings import default_repository
from drut_export.pbtxt import TARGETS, QueueBounds
from drut_export.publishing import staging_directory
from drut_export.triton_check import check_repository, notes_on_repository
from drut_export.triton_files import (
    bounds_of,
    decision_directory,
    models_in,
    refuse_decision,
    write_triton_files,
)

FAILED: Final = 1

MAX_SECONDS: Final = 86400


def main(argv: Sequence[str] | None = None) -> int:
    """Run one action. Returns 0 where all is well, else 1; wrong usage ends in `SystemExit`."""
    arguments = make_parser().parse_args(argv)
    try:
        return int(arguments.act(arguments))
    except (DrutError, OSError) as exc:
        _tell(f"drut repository: {exc}")
        return FAILED


def make_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="drut repository",
        description="Write or check what Triton reads of exported bundles: config.pbtxt of the "
        "graph, and the decision model beside it, which takes texts.",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    writing = actions.add_parser("write", help="write or renew the files of bundles")
    add = writing.add_argument
    add("bundles", nargs="+", metavar="BUNDLE", help="name, NAME@VERSION to roll back, directory")
    add("--to", type=Path, metavar="DIR", help="model repository that the bundles are copied to")
    add("--target", choices=TARGETS, help="where the graph runs (default: as before, else cpu)")
    add("--threads", type=_positive, metavar="N", help="of one pass on the CPU (default: 2)")
    add(
        "--max-queue",
        type=_whole,
        metavar="N",
        help="requests that may wait in the server's queue for the graph, 0: any number (default: "
        "as before, else 0). Server 2.51 stalls requests for half a second where there is a bound",
    )
    add(
        "--queue-timeout",
        type=_seconds,
        metavar="S",
        help="seconds that they may wait, and the ceiling of callers' own timeouts, 0: none "
        "(default: as before, else 0). The same holds",
    )
    writing.set_defaults(act=_write)
    checking = actions.add_parser("check", help="look for what a server would refuse or ignore")
    checking.add_argument(
        "repositories", nargs="*", type=Path, metavar="DIR", help="default: the first repository"
    )
    checking.set_defaults(act=_check)
    return parser


def _write(arguments: argparse.Namespace) -> int:
    for text in arguments.bundles:
        name, number = split_version(text)
        found = find_version(name if Path(name).name == name else Path(name), None, number)
        model = found.parent if arguments.to is None else _copied(found, arguments.to)
        left = write_triton_files(
            model,
            target=arguments.target,
            threads=arguments.threads,
            version=number if number is None else int(found.name),
            bounds=_bounds(arguments, model),
        )
        for path in left:
            _tell(f"left {path} alone: its first line says that somebody has made it their own")
        sys.stdout.write(f"{model}\n{decision_directory(model)}\n")
    return 0


def _bounds(arguments: argparse.Namespace, model: Path) -> QueueBounds:
    before = bounds_of(model)
    return QueueBounds(
        before.requests if arguments.max_queue is None else arguments.max_queue,
        before.seconds if arguments.queue_timeout is None else arguments.queue_timeout,
    )


def _copied(version: Path, repository: Path) -> Path:
    """Put one version of a bundle into another repository, whole or not at all."""
    bundle = read_version(version)
    model = repository / version.parent.name
    refuse_decision(model)
    target = model / version.name
    if target.is_dir():
        if read_version(version_directory(model, bundle.version)).manifest != bundle.manifest:
            raise ExportError(f"{target} is another bundle; choose another repository or version")
        return model
    with staging_directory(repository) as staging:
        whole = Path(shutil.copytree(version, staging / version.name))
        model.mkdir(exist_ok=True)
        whole.rename(target)
    return model


def _check(arguments: argparse.Namespace) -> int:
    code = 0
    for repository in arguments.repositories or [default_repository()]:
        if not models_in(repository):
            _tell(f"drut repository: there is no bundle in {repository}")
            code = FAILED
        for fault in check_repository(repository):
            sys.stdout.write(f"{repository}: {fault}\n")
            code = FAILED
        for note in notes_on_repository(repository):
            sys.stdout.write(f"{repository}: note: {note}\n")
    return code


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of seconds from 0 to {MAX_SECONDS}"
        )
    return seconds


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
