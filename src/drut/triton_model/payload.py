"""The texts of a request become a state, questions and options, or an error that says why not."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, cast, get_args

from drut.errors import InvalidRequestError, InvalidTextError, InvalidTypeError
from drut.questions import shorten, without_repeats
from drut.schema import Prediction, State
from drut.triton_model import OPTIONS, QUESTIONS, STATE

StateFormat = Literal["auto", "text", "json"]

OPTION_KEYS: Final = ("lang", "max_len", "head_max_len", "min_confidence", "state_format")


@dataclass(frozen=True, slots=True)
class Ask:
    """What one row of a request asks. Questions and options are checked only as JSON."""

    state: State
    questions: Any
    options: Mapping[str, Any]


def read_ask(state: bytes, questions: bytes, options: bytes | None) -> Ask:
    """Read the texts of one row.

    Args:
        state: UTF-8. A whole JSON object or array is read as one, unless `state_format` says
            `text`; with `json` any JSON value is.
        questions: JSON object of question id to definition.
        options: JSON object with any of `OPTION_KEYS`; None or empty: none.

    Raises:
        InvalidRequestError: a text is not UTF-8 or not the JSON it has to be.
    """
    given = _options(options)
    wanted = given.get("state_format", "auto")
    if wanted not in get_args(StateFormat):
        raise InvalidRequestError(
            f"{OPTIONS}: state_format must be 'auto', 'text' or 'json', got {shorten(wanted)}"
        )
    text = _text(STATE, state)
    return Ask(_state(text, cast(StateFormat, wanted)), _json(QUESTIONS, questions), given)


def write_answers(prediction: Prediction) -> bytes:
    """The prediction as JSON in UTF-8."""
    return json.dumps(prediction, ensure_ascii=False, allow_nan=False).encode("utf-8")


def _options(text: bytes | None) -> Mapping[str, Any]:
    if not text:
        return {}
    given = _json(OPTIONS, text)
    if not isinstance(given, dict):
        raise InvalidTypeError(f"{OPTIONS} must be a JSON object, got {shorten(given)}")
    for key in given:
        if key not in OPTION_KEYS:
            raise InvalidRequestError(
                f"{OPTIONS} has the unknown key {shorten(key)}; keys are {', '.join(OPTION_KEYS)}"
            )
    return given


def _state(text: str, wanted: StateFormat) -> State:
    if wanted == "json":
        return _parsed(STATE, text)
    if wanted == "auto" and text.lstrip()[:1] in ("{", "["):
        try:
            return _loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _json(name: str, content: bytes) -> Any:
    return _parsed(name, _text(name, content))


def _parsed(name: str, text: str) -> Any:
    try:
        return _loads(text, without_repeats)
    except (ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"{name} is not JSON: {exc}") from exc


def _loads(text: str, pairs: Any = None) -> Any:
    return json.loads(text, parse_constant=_refuse, parse_float=_finite, object_pairs_hook=pairs)


def _text(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise InvalidTextError(
            f"{name} is not UTF-8 (byte 0x{content[exc.start]:02x} at {exc.start})"
        ) from exc


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits} is too large a number")
    return value
