from collections.abc import Iterator
from pathlib import Path

import pytest

from drut.cli.lines import Line, batches, is_json, read_lines


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "json"),
    [("a.jsonl", True), ("a.JSON", True), ("a.ndjson", True), ("a.txt", False), ("a", False)],
)
def test_the_suffix_decides_how_lines_are_read(name: str, json: bool) -> None:
    assert is_json(Path(name)) is json


def test_text_lines_are_states_as_they_stand(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b' {"a": 1}\r\n\n  \nlast without end')
    assert [(line.number, line.state) for line in read_lines(file)] == [
        (1, ' {"a": 1}'),
        (4, "last without end"),
    ]


def test_json_lines_are_values_and_only_state_and_id_is_a_wrapper(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.jsonl",
        b'"text"\n{"state": {"a": 1}, "id": "x"}\n{"state": 5}\n{"state": 1, "other": 2}\n[1]\n0\n',
    )
    assert [(line.state, line.id) for line in read_lines(file)] == [
        ("text", None),
        ({"a": 1}, "x"),
        (5, None),
        ({"state": 1, "other": 2}, None),
        ([1], None),
        (0, None),
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"{oops", "not JSON"),
        (b"NaN", "NaN is not a JSON number"),
        (b"1e999", "too large"),
        (b"null", "null"),
        (b'{"state": null, "id": 1}', "null"),
        (b'"\xff"', "byte 0xff at 1"),
        (b"[" * 100_000, "not JSON"),
        (b"1" * 10_000, "not JSON"),
        (b"[", "jq -c"),
    ],
)
def test_a_bad_line_is_a_fault_and_the_next_one_is_read(
    tmp_path: Path, content: bytes, fault: str
) -> None:
    bad, good = read_lines(write(tmp_path / "a.jsonl", content + b'\n"good"\n'))
    assert bad.fault is not None
    assert fault in bad.fault
    assert (good.number, good.state, good.fault) == (2, "good", None)


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (line,) = read_lines(write(tmp_path / "a.txt", b"\xef\xbb\xbfhello\n"))
    assert line.state == "hello"


@pytest.mark.parametrize("length", [9, 10, 11, 25, 1000])
def test_a_line_beyond_the_limit_is_skipped_whole(tmp_path: Path, length: int) -> None:
    file = write(tmp_path / "a.txt", b"x" * length + b"\nnext\n")
    first, second = read_lines(file, limit=10)
    assert (first.fault is None) == (length <= 10)
    assert (second.number, second.state) == (2, "next")
    assert second.end == file.stat().st_size


def test_ends_say_how_far_the_file_was_read(tmp_path: Path) -> None:
    lines = list(read_lines(write(tmp_path / "a.txt", b"one\r\n\nthree")))
    assert [line.end for line in lines] == [5, 11]


def test_lines_are_read_only_when_they_are_needed(tmp_path: Path) -> None:
    file = write(tmp_path / "a.txt", b"one\ntwo\n" * 10_000)
    lines = read_lines(file)
    assert next(lines).state == "one"


def numbered(sizes: list[int]) -> Iterator[Line]:
    return (Line(number, 0, size) for number, size in enumerate(sizes, start=1))


def test_batches_keep_order_and_count() -> None:
    grouped = [[line.number for line in batch] for batch in batches(numbered([1] * 7), 3)]
    assert grouped == [[1, 2, 3], [4, 5, 6], [7]]


def test_batches_of_long_lines_are_shorter() -> None:
    grouped = [[line.number for line in batch] for batch in batches(numbered([1, 9, 1, 30]), 9, 10)]
    assert grouped == [[1, 2], [3, 4]]


def test_no_lines_make_no_batch() -> None:
    assert list(batches(iter(()), 3)) == []
