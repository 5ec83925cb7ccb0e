from collections.abc import Mapping
from types import MappingProxyType

import pytest

from drut.language import leaves
from drut.language.leaves import Piece, read_pieces


def texts(state: object) -> list[str]:
    return [piece.text for piece in read_pieces(state)]


def test_strings_are_read_in_order_with_their_place() -> None:
    state = {"a": "one", "b": ["two", {"c": "three"}], "d": ("four",)}
    assert read_pieces(state) == [
        Piece((0,), 0, "one"),
        Piece((1, 0), 0, "two"),
        Piece((1, 1, 0), 0, "three"),
        Piece((2, 0), 0, "four"),
    ]


@pytest.mark.parametrize("state", [None, 5, 1.5, float("nan"), True, {1, 2}, object(), "", {}, []])
def test_what_holds_no_text(state: object) -> None:
    assert texts(state) == []


def test_keys_and_sets_are_not_text() -> None:
    assert texts({"hidden": {"x", "y"}, "also": 3, "kept": "text"}) == ["text"]


def test_bytes_are_read_as_utf8() -> None:
    assert texts([b"one", bytearray("zw\u00f6lf".encode()), b"\xff\xfe", b"caf\xc3"]) == [
        "one",
        "zwölf",
    ]


def test_long_bytes_may_be_cut_inside_a_character() -> None:
    data = ("x" + "é" * leaves.MAX_BYTES).encode()
    (head, tail) = texts(data)
    assert head.startswith("xé")
    assert set(tail) == {"é"}


def test_any_mapping_is_followed() -> None:
    class Odd(Mapping):
        def __getitem__(self, key):
            return "text " + key

        def __iter__(self):
            return iter("ab")

        def __len__(self):
            return 2

    assert texts(MappingProxyType({"k": Odd()})) == ["text a", "text b"]


def nested(levels: int) -> object:
    state: object = "deep"
    for _ in range(levels):
        state = [state]
    return state


def test_depth_is_limited() -> None:
    assert texts(nested(6)) == ["deep"]
    assert texts(nested(7)) == []
    assert texts(nested(100_000)) == []


def test_a_cycle_ends() -> None:
    cycle: list[object] = ["once"]
    cycle.append(cycle)
    assert texts(cycle)[0] == "once"


def test_both_ends_of_a_long_string_are_read() -> None:
    text = "a" * leaves.MAX_CHARS + "b" * 10 + "c" * leaves.MAX_CHARS
    head, tail = read_pieces(text)
    assert (head.start, set(head.text)) == (0, {"a"})
    assert set(tail.text) == {"c"}
    assert text[tail.start :] == tail.text
    assert len(head.text) + len(tail.text) == leaves.MAX_CHARS


def test_short_strings_stay_whole_beside_a_long_one() -> None:
    state = ["short", "x" * 10 * leaves.MAX_CHARS, "brief"]
    read = texts(state)
    assert (read[0], read[-1]) == ("short", "brief")
    assert leaves.MAX_CHARS - 20 <= sum(map(len, read)) <= leaves.MAX_CHARS


@pytest.mark.parametrize("count", [500, 512, 513, 1024, 1025, 3000])
def test_many_strings_are_read_from_both_ends(count: int) -> None:
    state = [f"text {index}" for index in range(count)]
    read = texts(state)
    assert read == list(dict.fromkeys(read))
    assert (read[0], read[-1]) == ("text 0", f"text {count - 1}")
    assert len(read) == min(count, 2 * leaves.MAX_LEAVES)
    positions = [piece.path[0] for piece in read_pieces(dict(enumerate(state)))]
    assert positions == sorted(positions)
    assert positions[-1] == count - 1


def test_many_values_without_text_end_the_search() -> None:
    visited = 0

    class Counting(list):
        def __iter__(self):
            nonlocal visited
            for item in super().__iter__():
                visited += 1
                yield item

    texts(Counting(range(100_000)))
    assert visited <= leaves.MAX_VALUES


def test_a_large_state_is_read_within_the_budget() -> None:
    state = {f"key{index}": "word " * 100 for index in range(5_000)}
    assert sum(map(len, texts(state))) <= leaves.MAX_CHARS
