"""Temperatures and confidence bins that fit labelled logits. Pure functions, NumPy only.

Temperatures minimise the mean negative log-likelihood (Guo et al. 2017, "On Calibration of Modern
Neural Networks", section 4.2); bins are histogram binning (Zadrozny and Elkan 2001) of the largest
probability; the expected calibration error is that of Guo et al., section 2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from drut.decoding.calibration import (
    BUCKETS,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    Calibration,
    Temperatures,
    bucket,
    primary_subtag,
)
from drut.decoding.probabilities import softmax
from drut.errors import InvalidRequestError
from drut.schema import QuestionType
from drut.tensors import QTYPES, Bool, Float32, Int64

Float64: TypeAlias = NDArray[np.float64]

BINS: Final = 15
_STEPS: Final = 60
_PRECISION: Final = 1e-12


@dataclass(frozen=True, slots=True)
class Record:
    """One answered question: what the model said, and what is right."""

    kind: QuestionType
    logits: Float32  # [options], in the order of the options, of at least one
    target: int  # index of the right option
    language: str | None = None

    @property
    def bucket(self) -> str:
        """The `<type>:<size>` bucket it belongs to."""
        return bucket(self.kind, len(self.logits))


@dataclass(frozen=True, slots=True)
class Floors:
    """Records that are needed before something is fitted to them."""

    per_type: int = 10
    per_bucket: int = 2000
    per_binning: int = 200  # of a bucket


DEFAULT_FLOORS: Final = Floors()


@dataclass(frozen=True, slots=True)
class Reliability:
    """How confidence and accuracy agree, in equal-width bins of the confidence."""

    counts: Int64  # [bins], records
    confidence: Float64  # [bins], mean; 0 in empty bins
    accuracy: Float64  # [bins], share of right answers; 0 in empty bins

    @property
    def error(self) -> float:
        """Expected calibration error: mean of |accuracy - confidence|, weighted by count."""
        total = int(self.counts.sum())
        if not total:
            return 0.0
        gaps = np.abs(self.accuracy - self.confidence)
        return float((self.counts * gaps).sum() / total)


def fit_temperature(records: Sequence[Record]) -> float:
    """The temperature in [0.5, 5] that minimises the mean negative log-likelihood.

    The likelihood has one optimum, as its logarithm is concave in 1/T. Newton steps that leave the
    bracket are replaced by halving it. Records that no temperature tells apart give 1.
    """
    rows = _stacked(records)
    low, high = 1.0 / MAX_TEMPERATURE, 1.0 / MIN_TEMPERATURE
    if not records or rows.slope(1.0)[0] == 0:
        return 1.0
    if rows.slope(low)[0] >= 0:
        return MAX_TEMPERATURE
    if rows.slope(high)[0] <= 0:
        return MIN_TEMPERATURE
    inverse = 1.0
    for _ in range(_STEPS):
        slope, curvature = rows.slope(inverse)
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        wanted = inverse - slope / curvature if curvature > 0 else high
        if not low < wanted < high:
            wanted = (low + high) / 2
        if abs(wanted - inverse) < _PRECISION:
            break
        inverse = wanted
    return 1.0 / inverse


def fit_calibration(
    records: Sequence[Record],
    current: Calibration,
    floors: Floors = DEFAULT_FLOORS,
    *,
    binning: bool = False,
) -> Calibration:
    """Fit temperatures, and with `binning` maps of confidence on top of them.

    Temperatures per language stay as they are. Without `binning`, and where no bucket has enough
    records for it, the result has no maps.

    Raises:
        InvalidRequestError: no type has as many records as its floor.
    """
    counts = {kind: _count(records, kind) for kind in QTYPES}
    if max(counts.values()) < max(1, floors.per_type):
        found = ", ".join(f"{kind} {number}" for kind, number in counts.items())
        raise InvalidRequestError(
            f"no question type has the {floors.per_type} labelled answers that fitting needs "
            f"(found: {found}); label more, or lower the floor per type"
        )
    temperatures = fit_temperatures(records, current.temperatures, floors)
    maps = fit_binning(records, temperatures, floors) if binning else {}
    return replace(current, temperatures=temperatures, binning=maps or None)


def fit_temperatures(
    records: Sequence[Record], current: Temperatures, floors: Floors = DEFAULT_FLOORS
) -> Temperatures:
    """Fit one temperature per type, and one per bucket where there are enough records.

    What the records are too few to say stays as it is: the temperatures of a type below its floor,
    and that of a bucket below its floor as long as it explains the bucket's records better than
    the type's new one. A type whose records would become less likely keeps what it has.

    Args:
        records: labelled answers, in any order.
        current: the temperatures in effect.
        floors: records needed for a type and for a bucket.
    """
    by_type = list(current.by_type)
    by_bucket = dict(current.by_bucket)
    for kind, index in QTYPES.items():
        own = [record for record in records if record.kind == kind]
        if not own or len(own) < floors.per_type:
            continue
        made = _fit_type(own, current, floors)
        if mean_nll(own, Calibration(made)) <= mean_nll(own, Calibration(current)):
            by_type[index] = made.by_type[index]
            refitted = {name for name in BUCKETS if name.startswith(f"{kind}:")}
            others = {name: t for name, t in by_bucket.items() if name not in refitted}
            by_bucket = {**others, **made.by_bucket}
    return Temperatures((by_type[0], by_type[1], by_type[2]), _in_order(by_bucket))


def fit_language_temperatures(
    records: Sequence[Record], general: Temperatures, floors: Floors = DEFAULT_FLOORS
) -> dict[str, Temperatures]:
    """Fit temperatures for every language that has enough records of some type.

    A language never uses the general buckets, so a type that it lacks gets the general one.

    Args:
        records: labelled answers; those without a language are left out.
        general: temperatures by type for what a language has too few records of.
        floors: records needed for a type and for a bucket, within one language.
    """
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.language:
            found.setdefault(primary_subtag(record.language), []).append(record)
    base = Temperatures(general.by_type)
    return {
        code: fit_temperatures(own, base, floors)
        for code, own in sorted(found.items())
        if any(_count(own, kind) >= max(1, floors.per_type) for kind in QTYPES)
    }


def fit_binning(
    records: Sequence[Record],
    temperatures: Temperatures,
    floors: Floors = DEFAULT_FLOORS,
    *,
    bins: int = BINS,
) -> dict[str, tuple[float, ...]]:
    """Map confidence to accuracy in equal-width bins, per bucket with enough records.

    Args:
        records: labelled answers.
        temperatures: those in effect when the map is applied.
        floors: records needed for a bucket.
        bins: number of bins; an empty one maps to its centre.
    """
    plain = Calibration(temperatures)
    maps: dict[str, tuple[float, ...]] = {}
    for name in BUCKETS:
        own = [record for record in records if record.bucket == name]
        if own and len(own) >= floors.per_binning:
            seen = reliability(own, plain, bins=bins)
            centres = (np.arange(bins) + 0.5) / bins
            values = np.where(seen.counts > 0, seen.accuracy, centres)
            maps[name] = tuple(float(value) for value in values)
    return maps


def mean_nll(records: Sequence[Record], calibration: Calibration) -> float:
    """Mean negative log-likelihood of the right options, in nats; 0 without records."""
    if not records:
        return 0.0
    return _stacked(records).nll(1.0 / _temperatures(records, calibration))


def reliability(
    records: Sequence[Record], calibration: Calibration, *, bins: int = BINS
) -> Reliability:
    """How often the answers of each confidence are right.

    The confidence is `answer_confidence` before rounding: the largest probability, binned where
    the calibration has a map.
    """
    counts = np.zeros(bins, np.int64)
    sums = np.zeros((2, bins))
    if records:
        confidence, right = _answers(records, calibration)
        place = np.minimum(bins - 1, (confidence * bins).astype(np.int64))
        counts = np.bincount(place, minlength=bins)
        sums[0] = np.bincount(place, confidence, bins)
        sums[1] = np.bincount(place, right, bins)
    confidences, accuracies = sums / np.maximum(counts, 1)
    return Reliability(counts, confidences, accuracies)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Records in one rectangle; a row's largest logit is 0."""

    logits: Float64  # [records, options], 0 where not real
    mask: Bool  # [records, options]
    targets: Int64  # [records]

    def slope(self, inverse: float) -> tuple[float, float]:
        """First and second derivative of the mean negative log-likelihood by 1/T."""
        p = np.exp(np.where(self.mask, inverse * self.logits, -np.inf))
        p /= p.sum(axis=1, keepdims=True)
        mean = (p * self.logits).sum(axis=1)
        spread = (p * (self.logits - mean[:, None]) ** 2).sum(axis=1)
        return float((mean - self._right()).mean()), float(spread.mean())

    def nll(self, inverse: Float64) -> float:
        """Mean negative log-likelihood; `inverse` is 1/T per record."""
        scaled = np.where(self.mask, inverse[:, None] * self.logits, -np.inf)
        total = np.log(np.exp(scaled).sum(axis=1))
        return float((total - inverse * self._right()).mean())

    def _right(self) -> Float64:
        right: Float64 = self.logits[np.arange(len(self.targets)), self.targets]
        return right


def _fit_type(own: Sequence[Record], current: Temperatures, floors: Floors) -> Temperatures:
    """Temperatures of one type, whose records are at least as many as its floor."""
    index = QTYPES[own[0].kind]
    fitted = fit_temperature(own)
    by_bucket: dict[str, float] = {}
    for name in (name for name in BUCKETS if name.startswith(f"{own[0].kind}:")):
        records = [record for record in own if record.bucket == name]
        kept = current.by_bucket.get(name)
        if records and len(records) >= floors.per_bucket:
            by_bucket[name] = fit_temperature(records)
        elif kept is not None and _explains(kept, records) <= _explains(fitted, records):
            by_bucket[name] = kept
    by_type = [fitted if place == index else t for place, t in enumerate(current.by_type)]
    return Temperatures((by_type[0], by_type[1], by_type[2]), by_bucket)


def _explains(temperature: float, records: Sequence[Record]) -> float:
    return mean_nll(records, Calibration(Temperatures((temperature,) * 3)))


def _count(records: Sequence[Record], kind: str) -> int:
    return sum(record.kind == kind for record in records)


def _in_order(by_bucket: Mapping[str, float]) -> dict[str, float]:
    """Known buckets first, in their order."""
    known = {name: by_bucket[name] for name in BUCKETS if name in by_bucket}
    return {**known, **by_bucket}


def _temperatures(records: Sequence[Record], calibration: Calibration) -> Float64:
    return np.asarray(
        [
            calibration.temperature(record.kind, len(record.logits), record.language)
            for record in records
        ]
    )


def _answers(records: Sequence[Record], calibration: Calibration) -> tuple[Float64, Float64]:
    """Confidence of every answer as decoding gives it, and 1 where the answer is right."""
    rows = _stacked(records)
    temperatures = _temperatures(records, calibration).astype(np.float32)
    logits = np.where(rows.mask, rows.logits, -np.inf).astype(np.float32)
    probabilities = softmax(logits, temperatures[:, None])
    right = (probabilities.argmax(axis=1) == rows.targets).astype(np.float64)
    best = np.clip(probabilities.max(axis=1).astype(np.float64), 0.0, 1.0)
    if calibration.binning is None:
        return best, right
    binned = [
        calibration.binned(float(value), record.kind, len(record.logits), record.language)
        for value, record in zip(best, records, strict=True)
    ]
    return np.asarray(binned), right


def _stacked(records: Sequence[Record]) -> _Rows:
    widths = np.asarray([len(record.logits) for record in records], np.int64)
    width = int(widths.max(initial=1))
    logits = np.zeros((len(records), width))
    for row, record in zip(logits, records, strict=True):
        row[: len(record.logits)] = record.logits.astype(np.float64) - record.logits.max()
    targets = np.asarray([record.target for record in records], np.int64)
    return _Rows(logits, np.arange(width) < widths[:, None], targets)
