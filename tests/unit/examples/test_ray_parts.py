"""The pure half of examples/ray: parts of a file, and going on after an interruption."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[3]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parts", ROOT / "examples" / "ray" / "parts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["parts"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


parts = load()


@given(
    st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]))),
    st.integers(1, 7),
    st.booleans(),
)
def test_parts_are_the_lines_of_the_file_each_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int, ends: bool
) -> None:
    source = tmp_path_factory.mktemp("in") / "in.jsonl"
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    source.write_bytes(text.encode())
    made = list(parts.split(source, size))
    assert b"".join(line for part in made for line in parts.read(source, part)) == text.encode()
    assert [part.number for part in made] == list(range(len(made)))
    assert [part.line for part in made] == [size * index for index in range(len(made))]
    assert all(part.lines == size for part in made[:-1])


def test_a_part_without_lines_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("a\n")
    with pytest.raises(ValueError, match="at least one line"):
        list(parts.split(tmp_path / "in", 0))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{number}\n" for number in range(5)))
    return path


def test_what_is_written_is_finished_and_what_was_cut_short_is_not(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    parts.open_plan(out, source, lines=2)
    made = list(parts.split(source, 2))
    parts.write(out, made[1], [{"id": "ä"}])
    (out / f".{made[2].name}.99").write_text("half")
    parts.open_plan(out, source, lines=2)
    assert [row["number"] for row in parts.unfinished(out, made)] == [0, 2]
    assert json.loads((out / made[1].name).read_text(encoding="utf-8")) == {"id": "ä"}
    assert sorted(path.name for path in out.iterdir()) == ["part-000001.jsonl", "plan.json"]


def test_a_part_written_twice_is_there_once(source: Path, tmp_path: Path) -> None:
    (made,) = parts.split(source, 9)
    for _ in range(2):
        parts.write(tmp_path, made, ["x"])
    assert [path.read_text() for path in tmp_path.glob("part-*")] == ['"x"\n']


def test_a_part_that_ends_one_worker_after_another_is_given_up(
    source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    parts.open_plan(out, source, lines=2)
    made = list(parts.split(source, 2))
    for _ in range(parts.WORKERS):
        parts.begin(out, made[1])
        parts.begin(out, made[0])
        parts.write(out, made[0], [])
    with pytest.raises(RuntimeError, match="4 workers have ended at lines 2 to 3"):
        parts.begin(out, made[1])
    parts.open_plan(out, source, lines=2)  # another run
    parts.begin(out, made[1])
    parts.write(out, made[1], [])
    assert sorted(path.name for path in out.iterdir()) == [
        "part-000000.jsonl", "part-000001.jsonl", "plan.json"
    ]  # fmt: skip


def test_a_part_that_fails_leaves_no_output(source: Path, tmp_path: Path) -> None:
    (made,) = parts.split(source, 9)
    with pytest.raises(TypeError):
        parts.write(tmp_path, made, ["x", object()])
    assert not list(tmp_path.glob("part-*"))


@pytest.mark.parametrize("change", ["facts", "file"])
def test_another_run_does_not_mix_into_the_output(
    source: Path, tmp_path: Path, change: str
) -> None:
    parts.open_plan(tmp_path / "out", source, lines=2)
    if change == "file":
        source.write_text("other\n")
    with pytest.raises(parts.PlanError, match="lines" if change == "facts" else "bytes"):
        parts.open_plan(tmp_path / "out", source, lines=3 if change == "facts" else 2)
