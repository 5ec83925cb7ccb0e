import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drut.errors import ExportError
from drut_export import publishing
from drut_export.pbtxt import GENERATED
from drut_export.publishing import ATTEMPTS, next_version, publish, staging_directory

ROOT = Path(__file__).parents[3]


@contextmanager
def staged(repository: Path, name: str = "tiny", pbtxt: str = GENERATED) -> Iterator[Path]:
    with staging_directory(repository) as staging:
        version = staging / name / "unnumbered"
        version.mkdir(parents=True)
        (version / "model.onnx").write_bytes(b"graph")
        (staging / name / "config.pbtxt").write_text(pbtxt)
        yield staging / name


def number_it(directory: Path, number: int) -> None:
    (directory / "manifest.json").write_text(str(number))


def publish_one(repository: Path, version: int | None = None, pbtxt: str = GENERATED) -> Path:
    with staged(repository, pbtxt=pbtxt) as directory:
        return publish(directory, repository / "tiny", version, number_it)


def test_the_first_version_comes_with_its_config_in_one_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[tuple[str, str]] = []
    rename = os.rename

    def remember(source: Path, target: Path) -> None:
        moved.append((Path(source).name, Path(target).name))
        rename(source, target)

    monkeypatch.setattr(publishing.os, "rename", remember)
    assert publish_one(tmp_path) == tmp_path / "tiny" / "1"
    assert ("tiny", "tiny") in moved
    found = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    assert found == ["tiny/1/manifest.json", "tiny/1/model.onnx", "tiny/config.pbtxt"]


def test_the_number_is_the_next_one_at_the_time_of_the_move(tmp_path: Path) -> None:
    with staged(tmp_path) as slow:
        assert publish_one(tmp_path).name == "1"
        assert publish_one(tmp_path).name == "2"
        place = publish(slow, tmp_path / "tiny", None, number_it)
    assert place.name == "3"
    assert (place / "manifest.json").read_text() == "3"
    assert next_version(tmp_path / "tiny") == 4


def test_a_number_lost_at_the_last_moment_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_one(tmp_path)
    rename, lost = os.rename, []

    def lose_once(source: Path, target: Path) -> None:
        if Path(target) == tmp_path / "tiny" / "2" and not lost:
            lost.append(target)
            Path(target).mkdir()
            (Path(target) / "theirs").touch()
        rename(source, target)

    monkeypatch.setattr(publishing.os, "rename", lose_once)
    place = publish_one(tmp_path, pbtxt=f"{GENERATED}\nnew")
    assert lost
    assert place.name == "3"
    assert (place / "manifest.json").read_text() == "3"
    assert sorted(path.name for path in (tmp_path / "tiny" / "2").iterdir()) == ["theirs"]
    assert (tmp_path / "tiny" / "config.pbtxt").read_text().endswith("new")
    assert sorted(path.name for path in (tmp_path / "tiny").iterdir()) == [
        "1",
        "2",
        "3",
        "config.pbtxt",
    ]


def test_trying_ends_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_one(tmp_path)
    rename = os.rename

    def always_lose(source: Path, target: Path) -> None:
        if Path(target).parent == tmp_path / "tiny":
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        rename(source, target)

    monkeypatch.setattr(publishing.os, "rename", always_lose)
    with pytest.raises(ExportError, match=f"{ATTEMPTS} exports of tiny"):
        publish_one(tmp_path)
    assert not list(tmp_path.glob(".*"))


def test_a_wanted_number_is_not_replaced_by_another(tmp_path: Path) -> None:
    publish_one(tmp_path, version=5)
    with pytest.raises(ExportError, match="5 was made by somebody else meanwhile"):
        publish_one(tmp_path, version=5)
    assert publish_one(tmp_path).name == "6"


def test_an_empty_directory_of_that_number_is_not_taken_over(tmp_path: Path) -> None:
    (tmp_path / "tiny" / "2").mkdir(parents=True)
    with pytest.raises(ExportError, match="meanwhile"):
        publish_one(tmp_path, version=2)
    assert not list((tmp_path / "tiny" / "2").iterdir())


def test_processes_that_publish_under_one_name_never_collide(tmp_path: Path) -> None:
    program = (
        "import sys, json\n"
        "from pathlib import Path\n"
        "from unit.export.test_publishing import publish_one\n"
        "repository = Path(sys.argv[1])\n"
        "print(json.dumps([int(publish_one(repository).name) for _ in range(20)]))\n"
    )
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "export", ROOT / "tests"))),
    }
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    made = [json.loads(worker.communicate(timeout=60)[0]) for worker in workers]
    assert all(worker.returncode == 0 for worker in workers)
    assert sorted(made[0] + made[1]) == list(range(1, 41))
    for number in range(1, 41):
        assert (tmp_path / "tiny" / str(number) / "manifest.json").read_text() == str(number)
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
