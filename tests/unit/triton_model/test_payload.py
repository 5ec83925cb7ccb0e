import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.errors import InvalidRequestError, InvalidTextError, InvalidTypeError
from drut.triton_model.payload import OPTION_KEYS, read_ask, write_answers

QUESTIONS = b'{"q": {"type": "noul", "instructions": "?"}}'


def state_of(text: str, **options: Any) -> Any:
    return read_ask(text.encode(), QUESTIONS, json.dumps(options).encode()).state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("It crashes", "It crashes"),
        ("", ""),
        ("12", "12"),
        ("null", "null"),
        ('"quoted"', '"quoted"'),
        ('{"a": 1}', {"a": 1}),
        (' \n[1, "b"]', [1, "b"]),
        ("{not json}", "{not json}"),
        ("[see below] and so on", "[see below] and so on"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_only_a_whole_object_or_array_is_read_as_json(text: str, state: Any) -> None:
    assert state_of(text) == state


def test_the_caller_can_say_what_a_state_is() -> None:
    assert state_of('{"a": 1}', state_format="text") == '{"a": 1}'
    assert state_of('"It crashes"', state_format="json") == "It crashes"
    assert state_of("null", state_format="json") is None
    with pytest.raises(InvalidRequestError, match="STATE is not JSON"):
        state_of("It crashes", state_format="json")
    with pytest.raises(InvalidRequestError, match="state_format must be"):
        state_of("x", state_format=["text"])


@given(st.text())
def test_a_text_arrives_as_it_is(text: str) -> None:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate cannot be sent
    sent = json.dumps({"state_format": "text"}).encode()
    assert read_ask(content, QUESTIONS, sent).state == text


@given(st.binary())
def test_whatever_bytes_come_the_error_is_the_callers(content: bytes) -> None:
    for texts in ((content, QUESTIONS, None), (b"x", content, None), (b"x", QUESTIONS, content)):
        with suppress(InvalidRequestError):
            read_ask(*texts)


def test_options_may_be_left_out_or_empty() -> None:
    for options in (None, b"", b"{}"):
        assert read_ask(b"x", QUESTIONS, options).options == {}


def test_all_options_are_handed_on() -> None:
    given: dict[str, Any] = dict.fromkeys(OPTION_KEYS, 1)
    given["state_format"] = "auto"
    assert read_ask(b"x", QUESTIONS, json.dumps(given).encode()).options == given


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (b"[]", InvalidTypeError, "must be a JSON object"),
        (b"{", InvalidRequestError, "OPTIONS is not JSON"),
        (b'{"langs": "de"}', InvalidRequestError, "unknown key 'langs'; keys are lang, max_len"),
        (b'{"lang": "a", "lang": "b"}', InvalidRequestError, "'lang' is there twice"),
        (b"\xff", InvalidTextError, "OPTIONS is not UTF-8"),
    ],
)
def test_options_are_checked(options: bytes, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        read_ask(b"x", QUESTIONS, options)


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_are_those_of_json(number: str) -> None:
    with pytest.raises(InvalidRequestError, match="QUESTIONS is not JSON"):
        read_ask(b"x", f'{{"q": {number}}}'.encode(), None)


def test_answers_are_json_in_utf8() -> None:
    written = write_answers({"model": "m", "answers": {}, "usage": {"input_tokens": 1}})
    assert json.loads(written) == {"model": "m", "answers": {}, "usage": {"input_tokens": 1}}
    said: Any = {"answers": {"ß": "Ω"}}
    assert "ß" in write_answers(said).decode("utf-8")
