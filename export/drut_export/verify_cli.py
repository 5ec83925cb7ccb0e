"""What `drut verify` calls: a bundle's files, and with `--source` its answers as well."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from drut.checkpoint.bundle import Bundle, read_version, split_version
from drut.checkpoint.integrity import FileCheck, check_files
from drut.checkpoint.source import fetch_checkpoint
from drut.errors import DrutError
from drut.loading import find_version
from drut.settings import default_revision

if TYPE_CHECKING:
    from drut_export.verify_report import VerifyReport

FAILED: Final = 1
INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Verify one bundle and print a report.

    Args:
        argv: arguments without the program's name, by default those of the process.

    Returns:
        0 as it should be, 1 not so or not to be found out, 130 interrupted. Wrong usage ends in
        `SystemExit(2)`.

    Raises:
        ImportError: `--source` was given and the exporter's packages are not installed.
    """
    arguments = make_parser().parse_args(argv)
    try:
        passed, report = _verify(arguments)
    except (DrutError, OSError) as exc:
        _tell(f"drut verify: {exc}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    sys.stdout.write(f"{report}\n")
    return 0 if passed else FAILED


def make_parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    parser = argparse.ArgumentParser(
        prog="drut verify",
        description="Verify an exported bundle: every file against its digest in the manifest and, "
        "with --source, the graph's answers against the checkpoint in torch. The exit code is 0 "
        "where everything is as it should be, else 1.",
    )
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="name, name@version or directory of the bundle")
    add("--source", metavar="CHECKPOINT", help="checkpoint directory or hub repository")
    add("--subfolder", help="directory of the checkpoint inside the source")
    add(
        "--revision",
        help="commit, tag or branch on the hub (default: DRUT_REVISION, or that of the manifest)",
    )
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _verify(arguments: argparse.Namespace) -> tuple[bool, str]:
    """Whether everything is as it should be, and the report."""
    name, version = split_version(arguments.bundle)
    bundle = read_version(find_version(name, version=version))
    files = check_files(bundle)
    # A graph of other bytes has nothing to say about the one that was exported.
    compared = _compare(bundle, arguments) if arguments.source and files.passed else None
    passed = files.passed and (compared is None or compared.passed)
    if arguments.json:
        return passed, _json(bundle, files, compared, passed=passed)
    lines = [*_about_files(bundle, files), *_about_answers(bundle, arguments.source, compared)]
    return passed, "\n".join([*lines, "", "passed" if passed else "FAILED"])


def _compare(bundle: Bundle, arguments: argparse.Namespace) -> "VerifyReport":
    # Imported here: checking files needs neither torch nor transformers.
    from drut_export.verify_bundle import verify_bundle

    found = fetch_checkpoint(
        arguments.source,
        subfolder=arguments.subfolder,
        revision=arguments.revision or default_revision() or bundle.manifest.get("revision"),
    )
    return verify_bundle(bundle, found.path, progress=_tell)


def _about_files(bundle: Bundle, files: FileCheck) -> Iterator[str]:
    yield f"{bundle.name} version {bundle.version} ({bundle.precision}) in {bundle.directory}"
    matching = files.checked - len(files.faults)
    yield f"{max(0, matching)} of {files.checked} files are as the manifest lists them"
    for fault in files.faults:
        yield f"- {fault}"
    if files.unlisted:
        yield f"not listed: {', '.join(files.unlisted)}"


def _about_answers(
    bundle: Bundle, source: str | None, compared: "VerifyReport | None"
) -> Iterator[str]:
    if compared is not None:
        from drut_export.report import render_report

        yield from ("", f"Compared with {source}:", "", render_report(compared))
    elif source:
        yield "not compared with the checkpoint, since these are not the files that were exported"
    else:
        yield from _recorded(bundle.manifest.get("verification"))


def _recorded(figures: object) -> Iterator[str]:
    if not isinstance(figures, dict):
        yield "the manifest has no figures of a verification"
        return
    yield "at export, over all rows:"
    for key, value in figures.items():
        if not isinstance(value, dict):
            shown = f"{value:.3g}" if isinstance(value, float) else value
            yield f"  {key.replace('_', ' ')}: {shown}"
    yield "give --source to compare the answers again"


def _json(
    bundle: Bundle, files: FileCheck, compared: "VerifyReport | None", *, passed: bool
) -> str:
    content: dict[str, Any] = {
        "name": bundle.name,
        "version": bundle.version,
        "precision": bundle.precision,
        "directory": str(bundle.directory),
        "passed": passed,
        "files": asdict(files),
        "comparison": compared.details() if compared is not None else None,
    }
    return json.dumps(content, ensure_ascii=False)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
