"""`drut bundle`: list, show and remove exported bundles, and clean up what was left behind."""

import argparse
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from rich.filesize import decimal

from drut import settings
from drut.checkpoint.bundle import read_version, split_version, version_directory, versions
from drut.checkpoint.housekeeping import delete_leftover, leftovers, remove, surplus_versions
from drut.cli import bundles, manifest_page
from drut.cli.console import FAILED, OK, is_terminal, page_on, tell, write_json
from drut.errors import CheckpointNotFoundError, InvalidRequestError
from drut.loading import DEFAULT_CHECKPOINT

FOLLOWER: Final = "drut_export.triton_files"
_YES: Final = ("y", "yes")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's actions and their arguments."""
    parser.description = "List, show or remove exported bundles, or clean up after them."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (run_it, configure_it, summary) in _ACTIONS.items():
        added = actions.add_parser(name, help=summary, allow_abbrev=False)
        added.description = f"{summary[0].upper()}{summary[1:]}."
        configure_it(added)
        # Without a default of its own, which would undo --debug in front of the action.
        added.add_argument("--debug", action="store_true", default=argparse.SUPPRESS)
        added.set_defaults(act=run_it)


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked for. Returns the exit code."""
    return int(arguments.act(arguments))


def _configure_show(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the highest version, or NAME@VERSION")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _configure_remove(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="all versions, or NAME@VERSION for one")
    add("--repository", type=Path, help="model repository (default: the first with the bundle)")
    add("--yes", action="store_true", help="do not ask")


def _configure_gc(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--keep", type=_count, metavar="N", help="also delete all but the N highest versions")
    add("--repository", type=Path, help="model repository (default: all of them)")
    add("--dry-run", action="store_true", help="only print what would be deleted")


def _list(arguments: argparse.Namespace) -> int:
    return bundles.run(arguments)


def _show(arguments: argparse.Namespace) -> int:
    name, version = split_version(arguments.name)
    _, model = _locate(name, settings.model_repositories())
    bundle = read_version(version_directory(model, version))
    if arguments.json:
        write_json({"directory": str(bundle.directory), **bundle.manifest}, sys.stdout)
    else:
        manifest_page.show(bundle, page_on(sys.stdout))
    return OK


def _remove(arguments: argparse.Namespace) -> int:
    name, version = split_version(arguments.name)
    repository, model = _locate(name, _repositories(arguments))
    numbers = versions(model)
    directory = model if version is None else version_directory(model, version)
    # A name without any version would still be a model to Triton.
    if numbers == [version]:
        directory = model
    _refuse_shipped(model)
    listed = ", ".join(map(str, numbers)) if directory == model else str(version)
    if not arguments.yes and not _confirmed(
        f"remove {name}, version {listed} ({decimal(_size(directory))}), from {repository}?"
    ):
        tell("nothing was removed")
        return FAILED
    _drop(repository, directory)
    tell(f"removed {directory}")
    return OK


def _collect(arguments: argparse.Namespace) -> int:
    code, freed = OK, 0
    for directory, delete in _garbage(arguments):
        size = _size(directory)
        try:
            if not arguments.dry_run:
                delete(directory)
        except OSError as exc:
            tell(f"drut bundle: {directory}: {exc.strerror or exc}")
            code = FAILED
            continue
        sys.stdout.write(f"{directory}\n")
        freed += size
    tell(f"{decimal(freed)} {'would be freed' if arguments.dry_run else 'freed'}")
    return code


def _garbage(
    arguments: argparse.Namespace,
) -> Iterable[tuple[Path, Callable[[Path], None]]]:
    for repository in _repositories(arguments):
        for directory in leftovers(repository):
            yield directory, delete_leftover
        if arguments.keep is None:
            continue
        for directory in surplus_versions(repository, arguments.keep):
            if not _is_shipped(directory.parent):
                yield directory, partial(_drop, repository)


def _drop(repository: Path, directory: Path) -> None:
    """Remove a bundle or a version, and let the files follow that Triton reads."""
    follower = import_module(FOLLOWER)
    if directory.parent == repository:
        follower.remove_decision(directory)  # first: without its graph a server would not start
        remove(repository, directory)
    else:
        remove(repository, directory)
        follower.follow_versions(directory.parent)


def _repositories(arguments: argparse.Namespace) -> list[Path]:
    """The named repository, or all that are there, each once."""
    if arguments.repository is not None:
        if not arguments.repository.is_dir():
            raise CheckpointNotFoundError(f"there is no model repository {arguments.repository}")
        return [arguments.repository]
    found: dict[Path, Path] = {}
    for path in settings.model_repositories():
        found.setdefault(path.resolve(), path)
    return [path for path in found.values() if path.is_dir()]


def _locate(name: str, repositories: Iterable[Path]) -> tuple[Path, Path]:
    """The first repository that has a bundle of that name, and its directory there."""
    known: dict[str, tuple[Path, Path]] = {}
    searched = [path for path in repositories if path.is_dir()]
    for repository in searched:
        for directory in repository.iterdir():
            if versions(directory):
                known.setdefault(directory.name, (repository, directory))
    if name in known:
        return known[name]
    close = get_close_matches(name, known, n=1)
    places = ", ".join(map(str, searched)) or "any model repository"
    raise CheckpointNotFoundError(
        f"there is no bundle {name!r} in {places}"
        + (f"; did you mean {close[0]!r}?" if close else "; see: drut bundle list")
    )


def _refuse_shipped(model: Path) -> None:
    if _is_shipped(model):
        raise InvalidRequestError(
            f"{model} ships with drut and is not removed; it goes when drut is uninstalled"
        )


def _is_shipped(model: Path) -> bool:
    return model.resolve() == (settings.shipped_repository() / DEFAULT_CHECKPOINT).resolve()


def _confirmed(question: str) -> bool:
    if not is_terminal(sys.stdin):
        raise InvalidRequestError("nobody can be asked here, so nothing was removed; give --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in _YES


def _size(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file())


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


_ACTIONS: Final[dict[str, tuple[Any, Any, str]]] = {
    "list": (_list, bundles.configure, "list the bundles that can be opened"),
    "show": (_show, _configure_show, "print the manifest of a bundle"),
    "remove": (_remove, _configure_remove, "delete a bundle, or one version of it"),
    "gc": (_collect, _configure_gc, "delete what ended exports and removals left behind"),
}
