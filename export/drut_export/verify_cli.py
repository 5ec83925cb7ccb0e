"""What `drut verify` calls: a bundle's files, and with `--source` or `--url` its answers too."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from drut.checkpoint.bundle import Bundle, read_version, split_version
from drut.checkpoint.integrity import FileCheck, check_files
from drut.checkpoint.opened import Checkpoint
from drut.checkpoint.source import fetch_checkpoint
from drut.errors import DrutError, InvalidRequestError
from drut.loading import find_version
from drut.runtimes.base import Runtime
from drut.runtimes.opening import RuntimeOptions, open_runtime
from drut.runtimes.triton_options import TritonOptions
from drut.settings import default_revision

if TYPE_CHECKING:
    from drut_export.verify_report import VerifyReport

FAILED: Final = 1
INTERRUPTED: Final = 130


def main(
    argv: Sequence[str] | None = None, *, open_server: Callable[..., Runtime] = open_runtime
) -> int:
    """Verify one bundle and print a report.

    Args:
        argv: arguments without the program's name, by default those of the process.
        open_server: opens the runtime `triton` as `drut.runtimes.opening.open_runtime` does.

    Returns:
        0 as it should be, 1 not so or not to be found out, 130 interrupted. Wrong usage ends in
        `SystemExit(2)`.

    Raises:
        ImportError: `--source` or `--url` was given and the exporter's packages are not installed.
    """
    arguments = make_parser().parse_args(argv)
    try:
        passed, report = _verify(arguments, open_server)
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
        "with --source, the graph's answers against the checkpoint in torch. With --url it is the "
        "graph on a Triton server that answers. The exit code is 0 where everything is as it "
        "should be, else 1.",
    )
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="name, name@version or directory of the bundle")
    add("--source", metavar="CHECKPOINT", help="checkpoint directory or hub repository")
    add("--subfolder", help="directory of the checkpoint inside the source")
    add(
        "--revision",
        help="commit, tag or branch on the hub (default: DRUT_REVISION, or that of the manifest)",
    )
    add(
        "--url",
        help="ask the model on this Triton server, http://HOST:8000 or grpc://HOST:8001; without "
        "--source it is compared with the bundle's graph on this machine",
    )
    add("--model", metavar="NAME", help="its name on the server (default: the bundle's)")
    add(
        "--labelled",
        type=Path,
        metavar="FILE",
        help="JSON Lines of labelled data as for drut calibrate: compare the calibration as well",
    )
    add("--json", action="store_true", help="print one JSON object")
    return parser


def _verify(arguments: argparse.Namespace, open_server: Callable[..., Runtime]) -> tuple[bool, str]:
    """Whether everything is as it should be, and the report."""
    _check_usage(arguments)
    name, version = split_version(arguments.bundle)
    bundle = read_version(find_version(name, version=version))
    files = check_files(bundle)
    # A graph of other bytes has nothing to say about the one that was exported.
    asked = files.passed and (arguments.source or arguments.url)
    compared = _compare(bundle, arguments, open_server) if asked else None
    passed = files.passed and (compared is None or compared.passed)
    if arguments.json:
        return passed, _json(bundle, files, compared, passed=passed)
    lines = [*_about_files(bundle, files), *_about_answers(bundle, arguments, compared)]
    return passed, "\n".join([*lines, "", "passed" if passed else "FAILED"])


def _check_usage(arguments: argparse.Namespace) -> None:
    if arguments.url is None and arguments.model is not None:
        raise InvalidRequestError("--model is the name on a server; give its --url as well")
    if arguments.labelled is not None and not (arguments.source or arguments.url):
        raise InvalidRequestError("--labelled needs --source or --url: something to compare with")


def _compare(
    bundle: Bundle, arguments: argparse.Namespace, open_server: Callable[..., Runtime]
) -> "VerifyReport":
    # Imported here: checking files needs nothing of the exporter's packages.
    from drut_export.verify_bundle import Wanted, verify_bundle

    wanted = Wanted(
        checkpoint=_fetch(bundle, arguments) if arguments.source else None,
        serve=partial(_serve, arguments, open_server) if arguments.url else None,
        labelled=arguments.labelled,
    )
    return verify_bundle(bundle, wanted, progress=_tell)


def _fetch(bundle: Bundle, arguments: argparse.Namespace) -> Path:
    return fetch_checkpoint(
        arguments.source,
        subfolder=arguments.subfolder,
        revision=arguments.revision or default_revision() or bundle.manifest.get("revision"),
    ).path


def _serve(
    arguments: argparse.Namespace, open_server: Callable[..., Runtime], checkpoint: Checkpoint
) -> Runtime:
    server = TritonOptions(arguments.url, model=arguments.model)
    return open_server("triton", checkpoint, RuntimeOptions(server=server))


def _about_files(bundle: Bundle, files: FileCheck) -> Iterator[str]:
    yield f"{bundle.name} version {bundle.version} ({bundle.precision}) in {bundle.directory}"
    matching = files.checked - len(files.faults)
    yield f"{max(0, matching)} of {files.checked} files are as the manifest lists them"
    for fault in files.faults:
        yield f"- {fault}"
    if files.unlisted:
        yield f"not listed: {', '.join(files.unlisted)}"


def _about_answers(
    bundle: Bundle, arguments: argparse.Namespace, compared: "VerifyReport | None"
) -> Iterator[str]:
    if compared is not None:
        from drut_export.report import render_report

        reference = arguments.source or "its own graph on this machine's CPU"
        subject = f"The model on {arguments.url}" if arguments.url else "The graph"
        yield from ("", f"{subject} compared with {reference}:", "", render_report(compared))
    elif arguments.source or arguments.url:
        yield "answers were not compared, since these are not the files that were exported"
    else:
        yield from _recorded(bundle.manifest.get("verification"))


def _recorded(figures: object) -> Iterator[str]:
    if not isinstance(figures, dict):
        yield "the manifest has no figures of a verification"
        return
    yield "at export, over all rows:"
    for key, value in figures.items():
        if value is not None and not isinstance(value, dict):
            shown = f"{value:.3g}" if isinstance(value, float) else value
            yield f"  {key.replace('_', ' ')}: {shown}"
    yield "give --source or --url to compare the answers again"


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
