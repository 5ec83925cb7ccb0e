import os
import shutil
from pathlib import Path

import pytest

from bundles import write_bundle
from drut.checkpoint import housekeeping
from drut.checkpoint.housekeeping import (
    REMOVED_PREFIX,
    STAGING_PREFIX,
    delete_leftover,
    leftovers,
    remove,
    surplus_versions,
)
from drut.errors import InvalidRequestError

HOUR = 3600.0
NOW = 2_000_000_000.0


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def make_old(directory: Path, hours: float) -> Path:
    for path in (*directory.rglob("*"), directory):
        os.utime(path, (NOW - hours * HOUR,) * 2)
    return directory


def left(repository: Path, name: str, hours: float) -> Path:
    directory = repository / name
    (directory / "tiny" / "1").mkdir(parents=True)
    (directory / "tiny" / "1" / "model.onnx").write_bytes(b"half")
    return make_old(directory, hours)


def test_a_version_or_a_whole_name_is_removed(tmp_path: Path) -> None:
    for number in (1, 2):
        write_bundle(tmp_path, "tiny", number)
    write_bundle(tmp_path, "other")
    remove(tmp_path, tmp_path / "tiny" / "1")
    assert entries(tmp_path / "tiny") == ["2"]
    remove(tmp_path, tmp_path / "tiny")
    assert entries(tmp_path) == ["other"]


def test_what_is_removed_is_gone_at_once_and_found_again_if_deleting_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path)

    def interrupted(path: Path) -> None:
        assert not (tmp_path / "tiny").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(housekeeping.shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove(tmp_path, tmp_path / "tiny")
    monkeypatch.undo()
    (rest,) = leftovers(tmp_path)
    assert rest.name.startswith(REMOVED_PREFIX)
    assert (rest / "1" / "model.onnx").is_file()
    delete_leftover(rest)
    assert entries(tmp_path) == []


@pytest.mark.parametrize("path", [".", "tiny/1/tokenizer", "..", "tiny/../../outside", "/etc"])
def test_nothing_but_a_bundle_s_directory_is_removed(path: str, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    write_bundle(repository)
    write_bundle(tmp_path, "outside")
    with pytest.raises(InvalidRequestError, match="not a bundle's directory"):
        remove(repository, repository / path)
    assert (repository / "tiny" / "1" / "model.onnx").is_file()
    assert (tmp_path / "outside" / "1" / "model.onnx").is_file()


@pytest.mark.parametrize("path", ["link", "link/1", "tiny/link"])
def test_links_are_not_followed(path: str, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    write_bundle(repository)
    kept = write_bundle(tmp_path / "elsewhere")
    (repository / "link").symlink_to(kept.parent)
    (repository / "tiny" / "link").symlink_to(kept)
    with pytest.raises(InvalidRequestError, match="link to somewhere else"):
        remove(repository, repository / path)
    assert (kept / "model.onnx").is_file()


def test_only_exports_older_than_a_day_are_taken_for_dead(tmp_path: Path) -> None:
    left(tmp_path, f"{STAGING_PREFIX}young", 23)
    dead = left(tmp_path, f"{STAGING_PREFIX}old", 25)
    removed = left(tmp_path, f"{REMOVED_PREFIX}x", 0)
    left(tmp_path, ".other", 1000)
    make_old(write_bundle(tmp_path).parent, 1000)
    assert leftovers(tmp_path, now=NOW) == [dead, removed]


def test_an_old_export_that_still_writes_lives(tmp_path: Path) -> None:
    directory = left(tmp_path, f"{STAGING_PREFIX}slow", 48)
    os.utime(directory / "tiny" / "1" / "model.onnx", (NOW - HOUR,) * 2)
    assert leftovers(tmp_path, now=NOW) == []


def test_a_repository_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    assert leftovers(tmp_path / "nowhere") == []
    assert surplus_versions(tmp_path / "nowhere", 1) == []


@pytest.mark.parametrize(("keep", "surplus"), [(1, ["2", "9"]), (2, ["2"]), (3, []), (4, [])])
def test_the_highest_versions_stay(keep: int, surplus: list[str], tmp_path: Path) -> None:
    for number in (2, 9, 10):
        write_bundle(tmp_path, "tiny", number)
    write_bundle(tmp_path, "other")
    shutil.copytree(tmp_path / "tiny", tmp_path / f"{STAGING_PREFIX}x")
    (tmp_path / "link").symlink_to(tmp_path / "tiny")
    assert surplus_versions(tmp_path, keep) == [tmp_path / "tiny" / number for number in surplus]


def test_a_leftover_that_somebody_else_deletes_is_no_error(tmp_path: Path) -> None:
    delete_leftover(tmp_path / f"{REMOVED_PREFIX}gone")
    (tmp_path / f"{REMOVED_PREFIX}file").touch()
    delete_leftover(tmp_path / f"{REMOVED_PREFIX}file")
    assert entries(tmp_path) == []
