import json
from pathlib import Path
from typing import Any

import pytest

from bundles import sha256, write_bundle
from drut.checkpoint.bundle import read_version
from drut.checkpoint.integrity import FileCheck, check_files


def check(directory: Path, **manifest: Any) -> FileCheck:
    path = directory / "manifest.json"
    content = {**json.loads(path.read_text()), **manifest}
    path.write_text(json.dumps(content))
    return check_files(read_version(directory))


def test_files_as_exported_pass(tmp_path: Path) -> None:
    assert check(write_bundle(tmp_path)) == FileCheck(4, (), ())


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer/tokenizer.json"])
def test_one_changed_byte_is_a_fault_even_if_the_size_stays(name: str, tmp_path: Path) -> None:
    directory = write_bundle(tmp_path)
    content = bytearray((directory / name).read_bytes())
    content[len(content) // 2] ^= 1
    (directory / name).write_bytes(content)
    found = check(directory)
    assert not found.passed
    (fault,) = found.faults
    assert fault.startswith(f"{name} has SHA-256 {sha256(directory / name)}, manifest.json says ")


def test_every_fault_is_told(tmp_path: Path) -> None:
    directory = write_bundle(tmp_path)
    for name in ("model.onnx", "rl_agent_config.json"):
        (directory / name).write_bytes(b"x")
    assert len(check(directory).faults) == 2


def test_further_files_are_told_and_do_no_harm(tmp_path: Path) -> None:
    directory = write_bundle(tmp_path)
    (directory / "tokenizer" / "notes.txt").touch()
    found = check(directory)
    assert found.passed
    assert found.unlisted == ("tokenizer/notes.txt",)


@pytest.mark.parametrize("facts", [None, {}, {"sha256": 5}, {"bytes": 3}, "0" * 64])
def test_a_file_without_a_digest_cannot_pass(facts: Any, tmp_path: Path) -> None:
    directory = write_bundle(tmp_path)
    files = json.loads((directory / "manifest.json").read_text())["files"]
    found = check(directory, files={**files, "model.onnx": facts})
    assert found.faults == ("model.onnx has no SHA-256 in manifest.json",)


def test_digests_may_be_written_in_capitals(tmp_path: Path) -> None:
    directory = write_bundle(tmp_path)
    files = json.loads((directory / "manifest.json").read_text())["files"]
    upper = {name: {"sha256": facts["sha256"].upper()} for name, facts in files.items()}
    assert check(directory, files=upper).passed


@pytest.mark.parametrize("kept", [[], ["rl_agent_config.json"]])
def test_a_manifest_that_does_not_list_the_graph_proves_nothing(
    kept: list[str], tmp_path: Path
) -> None:
    directory = write_bundle(tmp_path)
    files = json.loads((directory / "manifest.json").read_text())["files"]
    found = check(directory, files={name: files[name] for name in kept})
    assert not found.passed
    assert "export it again" in found.faults[0]
