import io
import json
import os
import time
from pathlib import Path

import pytest

from bundles import write_bundle
from drut.checkpoint.housekeeping import REMOVED_PREFIX, STAGING_PREFIX
from drut.cli.main import main
from triton_models import serve_bundle

DAY = 24 * 3600


class Answering(io.StringIO):
    """Standard input of a person who answers."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def repository(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first of two repositories: versions 1, 2 and 10 of `tickets`, and `refunds`."""
    first = home / "first"
    for number in (1, 2, 10):
        write_bundle(first, "tickets", number)
    write_bundle(first, "refunds")
    write_bundle(home / "second", "tickets", 77)
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", f"{first}{os.pathsep}{home / 'second'}")
    return first


def there(repository: Path) -> list[str]:
    return sorted(
        path.parent.relative_to(repository).as_posix() for path in repository.rglob("model.onnx")
    )


ALL = ["refunds/1", "tickets/1", "tickets/10", "tickets/2"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["bundle", *arguments])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_list_is_what_bundles_prints(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundles", "--json"]) == 0
    listed = capsys.readouterr().out
    assert run(capsys, "list", "--json") == (0, listed, "")
    assert [each["name"] for each in json.loads(listed)] == ["refunds", "tickets"]


def test_a_damaged_bundle_is_told_by_the_name_of_the_command(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "refunds" / "1" / "model.onnx").unlink()
    code, _, err = run(capsys, "list")
    assert code == 1
    assert err.startswith("drut bundle: refunds: ")


def test_show_prints_the_manifest_of_the_version_that_is_opened(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "show", "tickets", "--json")
    printed = json.loads(out)
    assert code == 0
    assert printed.pop("directory") == str(repository / "tickets" / "10")
    assert printed == json.loads((repository / "tickets" / "10" / "manifest.json").read_text())


def test_show_is_readable(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bundle(
        repository,
        "mine",
        batch_invariant=False,
        temperature=[1.5, 1.0, 2.0],
        verification={"max_probability_difference": 0.000012345, "tolerance": {"equal_choices": 1}},
        tools={"torch": "2.9"},
        licence="\x1b[31mred",
    )
    code, out, _ = run(capsys, "show", "mine@1")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[0] == "mine version 1"
    for line in (
        f"directory {repository / 'mine' / '1'}",
        "batch invariant no",
        "temperature 1.5, 1, 2",
        "verification",
        "max probability difference 1.234e-05",
        "tolerance equal choices 1",
        "torch 2.9",
        "files",
    ):
        assert line in lines
    assert "revision" not in out  # there is none
    assert "\x1b" not in out
    graph = next(line for line in lines if line.startswith("model.onnx "))
    assert len(graph.split()[-1]) == 64


@pytest.mark.parametrize("action", ["show", "remove"])
def test_an_unknown_name_is_answered_with_the_closest_one(
    action: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = run(capsys, action, "tikets")
    assert code == 1
    assert "no bundle 'tikets'" in err
    assert "did you mean 'tickets'?" in err
    assert "drut bundle list" in run(capsys, action, "zzz")[2]
    assert "versions: 1, 2, 10" in run(capsys, action, "tickets@3")[2]
    assert there(repository) == ALL


@pytest.mark.parametrize("name", ["..", ".", "/etc", "tickets/1", "../second/tickets", "", "*"])
def test_only_names_are_removed(
    name: str, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "remove", name, "--yes")[0] == 1
    assert there(repository) == ALL


def test_remove_takes_one_version_or_all(
    repository: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "tickets" / "config.pbtxt").touch()
    code, _, err = run(capsys, "remove", "tickets@2", "--yes")
    assert (code, err) == (0, f"removed {repository / 'tickets' / '2'}\n")
    assert there(repository) == ["refunds/1", "tickets/1", "tickets/10"]
    assert run(capsys, "remove", "tickets", "--yes")[0] == 0
    assert sorted(path.name for path in repository.iterdir()) == ["refunds"]
    assert there(home / "second") == ["tickets/77"]


def test_the_last_version_takes_its_name_with_it(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "refunds" / "config.pbtxt").touch()
    assert run(capsys, "remove", "refunds@1", "--yes")[0] == 0
    assert sorted(path.name for path in repository.iterdir()) == ["tickets"]


def test_a_repository_can_be_named(
    repository: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = ["--repository", str(home / "second")]
    assert run(capsys, "remove", "refunds", "--yes", *second)[0] == 1
    assert run(capsys, "remove", "tickets", "--yes", *second)[0] == 0
    assert there(repository) == ALL
    assert not list((home / "second").iterdir())
    code, _, err = run(capsys, "gc", "--repository", str(home / "third"))
    assert code == 1
    assert "no model repository" in err


@pytest.mark.parametrize(
    ("answer", "removed"),
    [("y\n", True), (" Yes \n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_remove_asks_first(
    answer: str,
    removed: bool,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", Answering(answer))
    code, out, err = run(capsys, "remove", "tickets")
    assert (code, out) == (0 if removed else 1, "")
    assert err.startswith("remove tickets, version 1, 2, 10 (")
    assert f"from {repository}? [y/N] " in err
    assert there(repository) == (["refunds/1"] if removed else ALL)


def test_where_nobody_can_be_asked_nothing_is_removed(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    code, _, err = run(capsys, "remove", "tickets")
    assert code == 1
    assert "give --yes" in err
    assert there(repository) == ALL


def test_the_starter_that_ships_is_never_removed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = home / "shipped"
    for number in (1, 2):
        write_bundle(shipped, "starter", number)
    write_bundle(shipped, "mine")
    (home / "link").symlink_to(shipped)
    for named in (shipped, home / "link"):
        monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(named))
        for name in ("starter", "starter@1"):
            code, _, err = run(capsys, "remove", name, "--yes")
            assert code == 1
            assert "ships with drut" in err
        assert run(capsys, "gc", "--keep", "1")[:2] == (0, "")
    assert there(shipped) == ["mine/1", "starter/1", "starter/2"]
    assert run(capsys, "remove", "mine", "--yes")[0] == 0


def test_a_starter_of_one_s_own_can_be_removed(
    repository: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_bundle(repository, "starter")
    write_bundle(home / "shipped", "starter")
    assert run(capsys, "remove", "starter", "--yes")[0] == 0
    assert there(repository) == ALL
    assert there(home / "shipped") == ["starter/1"]


def stale(repository: Path) -> tuple[Path, Path, Path]:
    """A dead export, one that may live, and a removal that was interrupted."""
    made = []
    for name, age in ((f"{STAGING_PREFIX}a", 2), (f"{STAGING_PREFIX}b", 0), (REMOVED_PREFIX, 0)):
        directory = repository / name
        directory.mkdir()
        (directory / "weights").write_bytes(b"x" * 1000)
        for path in (directory / "weights", directory):
            os.utime(path, (time.time() - age * DAY,) * 2)
        made.append(directory)
    return made[0], made[1], made[2]


def test_gc_deletes_what_nobody_needs_and_no_version(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dead, living, removed = stale(repository)
    code, out, err = run(capsys, "gc")
    assert (code, out.splitlines(), err) == (0, [str(dead), str(removed)], "2.0 kB freed\n")
    assert (dead.exists(), removed.exists(), living.exists()) == (False, False, True)
    assert there(repository) == ALL


def test_gc_keeps_as_many_versions_as_asked_for(
    repository: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(capsys, "gc", "--keep", "2")
    assert (code, out) == (0, f"{repository / 'tickets' / '1'}\n")
    assert there(repository) == ["refunds/1", "tickets/10", "tickets/2"]
    assert run(capsys, "gc", "--keep", "1")[0] == 0
    assert there(repository) == ["refunds/1", "tickets/10"]
    assert there(home / "second") == ["tickets/77"]


def test_a_dry_run_deletes_nothing(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dead, _, _ = stale(repository)
    code, out, err = run(capsys, "gc", "--keep", "1", "--dry-run")
    assert code == 0
    assert len(out.splitlines()) == 4
    assert err.endswith("would be freed\n")
    assert dead.exists()
    assert there(repository) == ALL


def test_what_cannot_be_deleted_is_told_and_the_rest_goes(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dead, _, removed = stale(repository)
    delete = __import__("shutil").rmtree

    def refuse(path: Path) -> None:
        if path == dead:
            raise PermissionError(13, "Permission denied")
        delete(path)

    monkeypatch.setattr("drut.checkpoint.housekeeping.shutil.rmtree", refuse)
    code, out, err = run(capsys, "gc")
    assert (code, out) == (1, f"{removed}\n")
    assert f"{dead}: Permission denied" in err


@pytest.mark.parametrize(
    "arguments", [[], ["purge"], ["gc", "--keep", "0"], ["gc", "--keep", "x"], ["remove"], ["show"]]
)
def test_wrong_usage_ends_with_two(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bundle", *arguments])
    assert ended.value.code == 2


@pytest.mark.parametrize("arguments", [["--debug", "show", "x"], ["show", "x", "--debug"]])
def test_debug_may_stand_before_or_behind_the_action(
    arguments: list[str], repository: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        main(["bundle", *arguments])


def served_files(repository: Path) -> list[str]:
    return sorted(path.relative_to(repository).as_posix() for path in repository.rglob("*.pbtxt"))


def test_remove_takes_the_decision_model_along_with_its_graph(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_bundle(repository, "served")
    serve_bundle(repository, "kept")
    assert run(capsys, "remove", "served", "--yes")[0] == 0
    assert served_files(repository) == ["kept/config.pbtxt", "kept_decision/config.pbtxt"]


def test_a_decision_model_of_ones_own_is_left(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_bundle(repository, "served")
    config = repository / "served_decision" / "config.pbtxt"
    config.write_text("# ours", encoding="utf-8")
    assert run(capsys, "remove", "served", "--yes")[0] == 0
    assert served_files(repository) == ["served_decision/config.pbtxt"]


@pytest.mark.parametrize("command", [["remove", "served@2", "--yes"], ["gc", "--keep", "1"]])
def test_the_decision_model_follows_when_a_version_goes(
    command: list[str], repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serve_bundle(repository, "served")
    serve_bundle(repository, "served", 2)
    if command[0] == "gc":
        assert main(["repository", "write", f"{repository / 'served'}@1"]) == 0
    assert run(capsys, *command)[0] == 0
    left = "1" if command[0] == "remove" else "2"
    text = (repository / "served_decision" / "config.pbtxt").read_text(encoding="utf-8")
    assert f'"bundle_version" value: {{ string_value: "{left}" }}' in text
