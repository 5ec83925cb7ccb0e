import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bundles import write_bundle
from drut.checkpoint.bundle import (
    find_bundle,
    is_bundle,
    read_bundle,
    split_version,
    versions,
)
from drut.errors import CheckpointFormatError, CheckpointNotFoundError


def manifest_only(directory: Path, content: Any = None) -> Path:
    """A version directory with nothing but a manifest, which lists no files."""
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"format": 1} if content is None else content)
    (directory / "manifest.json").write_text(text, encoding="utf-8")
    (directory / "model.onnx").touch()
    return directory


def test_a_bundle_says_what_it_is(tmp_path: Path):
    directory = write_bundle(tmp_path, "refunds", 3, precision="fp16")
    bundle = read_bundle(directory)
    assert (bundle.name, bundle.version, bundle.directory) == ("refunds", 3, directory)
    assert bundle.graph == directory / "model.onnx"
    assert bundle.precision == "fp16"


def test_the_highest_version_is_taken_unless_one_is_named(tmp_path: Path):
    for version in (2, 10, 9):
        manifest_only(tmp_path / "b" / str(version))
    assert versions(tmp_path / "b") == [2, 9, 10]
    assert read_bundle(tmp_path / "b").version == 10
    assert read_bundle(tmp_path / "b", 9).version == 9


def test_a_version_that_is_not_there_is_an_error_that_lists_the_others(tmp_path: Path):
    manifest_only(tmp_path / "b" / "1")
    with pytest.raises(CheckpointNotFoundError, match=r"version 2.*\b1\b"):
        read_bundle(tmp_path / "b", 2)
    with pytest.raises(CheckpointNotFoundError, match=r"no bundle"):
        read_bundle(tmp_path)


def test_a_named_version_is_not_replaced_by_that_of_the_path(tmp_path: Path):
    directory = manifest_only(tmp_path / "b" / "1")
    assert read_bundle(directory, 1).version == 1
    with pytest.raises(CheckpointNotFoundError, match="2"):
        read_bundle(directory, 2)


@pytest.mark.parametrize("name", ["draft", "1.5", "-1", "07", "0", "2.tmp", "²"])
def test_only_plain_numbers_with_a_manifest_are_versions(tmp_path: Path, name: str):
    manifest_only(tmp_path / "b" / name)
    (tmp_path / "b" / "4").mkdir()
    (tmp_path / "b" / "5").touch()
    assert versions(tmp_path / "b") == []
    assert not is_bundle(tmp_path / "b")
    with pytest.raises(CheckpointNotFoundError):
        read_bundle(tmp_path / "b")


def test_what_a_bundle_is(tmp_path: Path):
    version = manifest_only(tmp_path / "b" / "1")
    assert is_bundle(version)
    assert is_bundle(version.parent)
    assert not is_bundle(tmp_path)
    assert not is_bundle(tmp_path / "none")
    assert not is_bundle(version / "manifest.json")
    assert versions(tmp_path / "none") == []


def test_the_first_repository_with_the_name_wins(tmp_path: Path):
    manifest_only(tmp_path / "two" / "b" / "1")
    manifest_only(tmp_path / "three" / "b" / "7")
    repositories = [tmp_path / name for name in ("one", "two", "three")]
    found = find_bundle("b", repositories)
    assert found is not None
    assert found.directory == tmp_path / "two" / "b" / "1"
    assert find_bundle("c", repositories) is None
    assert find_bundle("b", []) is None


def test_a_missing_part_is_named_before_anything_is_opened(tmp_path: Path):
    directory = write_bundle(tmp_path)
    (directory / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"tokenizer/tokenizer\.json"):
        read_bundle(directory)


def test_a_lost_external_data_file_is_named(tmp_path: Path):
    directory = write_bundle(tmp_path, files={"model.onnx": {}, "model.onnx.data": {}})
    with pytest.raises(CheckpointNotFoundError, match=r"model\.onnx\.data"):
        read_bundle(directory)


def test_the_graph_is_looked_for_even_where_the_list_leaves_it_out(tmp_path: Path):
    directory = write_bundle(tmp_path, files={})
    (directory / "model.onnx").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"model\.onnx"):
        read_bundle(directory)


def test_a_copied_bundle_is_complete_in_itself(tmp_path: Path):
    directory = write_bundle(tmp_path / "here")
    moved = shutil.copytree(directory, tmp_path / "there" / "1")
    shutil.rmtree(tmp_path / "here")
    assert read_bundle(moved).graph.is_file()


@pytest.mark.parametrize("content", [{}, {"format": 2}, {"format": "1"}, {"format": None}])
def test_a_manifest_of_another_format_is_refused(tmp_path: Path, content: Any):
    directory = manifest_only(tmp_path / "1", content)
    with pytest.raises(CheckpointFormatError, match="format"):
        read_bundle(directory)


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_a_damaged_manifest_is_refused(tmp_path: Path, content: str):
    directory = manifest_only(tmp_path / "1")
    (directory / "manifest.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointFormatError, match=r"manifest\.json"):
        read_bundle(directory)


@pytest.mark.parametrize("files", [None, 5, [1], "model.onnx"], ids=repr)
def test_a_file_list_of_another_kind_is_refused(tmp_path: Path, files: Any):
    directory = manifest_only(tmp_path / "1", {"format": 1, "files": files})
    with pytest.raises(CheckpointFormatError, match="files"):
        read_bundle(directory)


@pytest.mark.parametrize("path", ["../other.onnx", "/etc/hostname", "a/../../other.onnx"])
@pytest.mark.parametrize("entry", ["graph", "files"])
def test_a_manifest_does_not_lead_out_of_its_directory(tmp_path: Path, entry: str, path: str):
    directory = manifest_only(
        tmp_path / "1", {"format": 1, entry: {path: {}} if entry == "files" else path}
    )
    (tmp_path / "other.onnx").touch()
    (directory / "a").mkdir()
    with pytest.raises(CheckpointFormatError):
        read_bundle(directory)


def test_defaults_of_an_old_manifest(tmp_path: Path):
    bundle = read_bundle(manifest_only(tmp_path / "b" / "1"))
    assert bundle.name == "b"
    assert bundle.graph.name == "model.onnx"
    assert bundle.precision == "fp32"


def test_a_version_directory_under_another_name_is_version_one(tmp_path: Path):
    assert read_bundle(manifest_only(tmp_path / "unpacked")).version == 1


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("starter", ("starter", None)),
        ("starter@3", ("starter", 3)),
        ("a@b@12", ("a@b", 12)),
        ("starter@0", ("starter@0", None)),
        ("starter@03", ("starter@03", None)),
        ("starter@v3", ("starter@v3", None)),
        ("starter@", ("starter@", None)),
        ("@3", ("@3", None)),
    ],
)
def test_a_version_may_follow_a_name(text: str, split: tuple[str, int | None]) -> None:
    assert split_version(text) == split


def test_a_path_that_exists_has_no_version_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run@3").mkdir()
    assert split_version("run@3") == ("run@3", None)
