"""The abstention gate: answers below a confidence are marked, none is removed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drut.decoding.calibration import BUCKETS, bucket
from drut.errors import InvalidRequestError
from drut.questions import shorten

_KEYS = (*BUCKETS, "default")


@dataclass(frozen=True, slots=True)
class Gate:
    """A checked `min_confidence`: thresholds by bucket, and one for everything else."""

    default: float = 0.0
    by_bucket: Mapping[str, float] | None = None

    def threshold(self, answer: Mapping[str, Any]) -> float:
        """Threshold of an answer, by its type and number of options."""
        if not self.by_bucket:
            return self.default
        kind = answer.get("type")
        if kind not in ("choice", "score", "noul"):
            return self.default
        shares = answer.get("probabilities")
        options = len(shares) if isinstance(shares, Mapping) and kind != "noul" else 2
        return self.by_bucket.get(bucket(kind, options), self.default)

    def apply(self, results: Sequence[Any]) -> None:
        """Write the verdict into every answer, in place; an earlier verdict is replaced."""
        for result in results:
            answers = result.get("answers")
            for answer in answers.values() if isinstance(answers, Mapping) else ():
                if isinstance(answer, dict):
                    self._judge(answer)

    def _judge(self, answer: dict[str, Any]) -> None:
        for key in ("low_confidence", "abstention", "abstention_threshold"):
            answer.pop(key, None)
        threshold = self.threshold(answer)
        value = _confidence(answer)
        verdict = "unevaluated"
        if value is not None:
            verdict = "abstained" if value < threshold else "passed"
        if verdict == "abstained":
            answer["low_confidence"] = True
        answer["abstention"] = verdict
        answer["abstention_threshold"] = threshold


def parse_min_confidence(value: object) -> Gate | None:
    """Check `min_confidence`: a number in [0, 1], or a map of buckets to such numbers.

    Raises:
        InvalidRequestError: anything else.
    """
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return Gate(_threshold(value, "min_confidence"))
    if not value:
        raise InvalidRequestError("min_confidence is an empty map; give a number or a bucket")
    for key in value:
        if key not in _KEYS:
            known = ", ".join(map(repr, BUCKETS))
            raise InvalidRequestError(
                f"min_confidence has the unknown bucket {shorten(key)}; use {known} or 'default'"
            )
    by_bucket = {key: _threshold(each, f"min_confidence[{key!r}]") for key, each in value.items()}
    return Gate(by_bucket.pop("default", 0.0), by_bucket)


def _threshold(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InvalidRequestError(f"{where} must be a number from 0 to 1, got {shorten(value)}")
    return float(value)


def _confidence(answer: Mapping[str, Any]) -> float | None:
    for key in ("answer_confidence", "confidence"):
        value = answer.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    return None
