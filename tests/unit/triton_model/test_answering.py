"""What cannot be answered is found before it costs anything."""

from typing import Any

import pytest

from drut.batching import PassPolicy
from drut.decoding.calibration import Calibration
from drut.errors import InvalidRequestError, InvalidTypeError
from drut.runtimes.fake import FakeRuntime
from drut.triton_model.answering import Answerer
from drut.triton_model.payload import Ask
from tiny_checkpoint import NOUL, checkpoint


def answerer() -> Answerer:
    return Answerer(checkpoint(), FakeRuntime(), Calibration(), PassPolicy())


@pytest.mark.parametrize(
    ("ask", "kind"),
    [
        (Ask("x", [1], {}), InvalidTypeError),
        (Ask("x", {"q": 1}, {}), InvalidRequestError),
        (Ask(None, NOUL, {}), InvalidTypeError),
        (Ask("x", NOUL, {"lang": 3}), InvalidTypeError),
        (Ask("x", NOUL, {"max_len": 1.5}), InvalidTypeError),
        (Ask("x", NOUL, {"min_confidence": 7}), InvalidRequestError),
    ],
)
def test_what_cannot_be_answered_is_found_before_any_pass(ask: Ask, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        answerer().prepare(ask)


def test_a_call_without_questions_has_an_empty_answer() -> None:
    made = answerer()
    found: Any = made.decode(made.prepare(Ask("x", {}, {})), {}, {})
    assert found["answers"] == {}
