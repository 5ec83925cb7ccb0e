"""Temperatures and binning maps: read once, clamped, looked up per row."""

import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from drut.checkpoint.config import CheckpointConfig
from drut.decoding.identity import ModelIdentity, check_identity
from drut.errors import CheckpointFormatError, CheckpointNotFoundError, InvalidRequestError
from drut.schema import QuestionType
from drut.tensors import QTYPES

MIN_TEMPERATURE: Final = 0.5
MAX_TEMPERATURE: Final = 5.0

SIZES: Final = ("2", "3-5", "6-10", "11+")
BUCKETS: Final = tuple(f"{kind}:{size}" for kind in QTYPES for size in SIZES)
"""Every `<type>:<size>` bucket by which temperatures, bins and thresholds are looked up."""

_VERSION_DIGITS: Final = 9


@dataclass(frozen=True, slots=True)
class Temperatures:
    """One set of temperatures, clamped."""

    by_type: tuple[float, float, float] = (1.0, 1.0, 1.0)  # choice, score, noul
    by_bucket: Mapping[str, float] = field(default_factory=dict)

    def of(self, kind: QuestionType, options: int) -> float:
        """Temperature of a question: its bucket's, or else its type's."""
        return self.by_bucket.get(bucket(kind, options), self.by_type[QTYPES[kind]])


@dataclass(frozen=True, slots=True)
class Calibration:
    """How logits become probabilities, and probabilities confidences."""

    temperatures: Temperatures = Temperatures()
    by_language: Mapping[str, Temperatures] = field(default_factory=dict)
    binning: Mapping[str, Sequence[float]] | None = None  # bucket to one value per equal-width bin

    def temperature(self, kind: QuestionType, options: int, language: str | None = None) -> float:
        """Temperature of one question, of its language where the checkpoint has such.

        A language never falls back to the checkpoint's buckets.
        """
        return self._of_language(language).of(kind, options)

    def binned(
        self, confidence: float, kind: QuestionType, options: int, language: str | None = None
    ) -> float:
        """Replace a confidence by the value of its bin; a language has no bins."""
        if self.binning is None or self.has_language(language):
            return confidence
        values = self.binning.get(bucket(kind, options))
        if values is None:
            return confidence
        return values[min(len(values) - 1, int(confidence * len(values)))]

    def has_language(self, language: str | None) -> bool:
        """Whether the language has temperatures of its own."""
        return language is not None and primary_subtag(language) in self.by_language

    def _of_language(self, language: str | None) -> Temperatures:
        if language is None:
            return self.temperatures
        return self.by_language.get(primary_subtag(language), self.temperatures)


def bucket(kind: QuestionType, options: int) -> str:
    """Bucket of a question: its type and the size class of its option count."""
    size = "2" if options <= 2 else "3-5" if options <= 5 else "6-10" if options <= 10 else "11+"
    return f"{kind}:{size}"


def primary_subtag(language: str) -> str:
    """`de` of `de-AT`; an underscore is not a separator here."""
    return language.split("-", 1)[0].lower()


def clamp_temperature(value: object) -> float:
    """A configured temperature as one that can be divided by.

    What is not a finite number becomes 1; numbers, also as text, are confined to [0.5, 5].
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 1.0
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return 1.0
    if not math.isfinite(number):
        return 1.0
    return min(MAX_TEMPERATURE, max(MIN_TEMPERATURE, number))


def calibration_of(
    config: CheckpointConfig, lang_temperatures: Mapping[str, object] | None = None
) -> Calibration:
    """Calibration of a checkpoint, with temperatures per language on top.

    Args:
        config: the checkpoint's settings.
        lang_temperatures: language code to None (the checkpoint's types, no buckets) or to a
            dict with `temperature` (three numbers) and `temperature_by_options`.

    Raises:
        InvalidRequestError: `lang_temperatures` is malformed.
    """
    return Calibration(
        _clamped(config.temperature, config.temperature_by_options, "the checkpoint"),
        _by_language(config, lang_temperatures or {}),
    )


def read_calibration(
    path: str | Path,
    calibration: Calibration,
    identity: ModelIdentity | None = None,
    *,
    any_graph: bool = False,
) -> Calibration:
    """Return `calibration` with temperatures and bins replaced by those of a calibration file.

    Temperatures per language stay. A file of another model is used with a
    `CalibrationIdentityWarning`.

    Args:
        path: the file.
        calibration: what it changes.
        identity: the model it is to be used for; None: the file is not compared with any.
        any_graph: accept a file that is bound to another graph or tokenizer.

    Raises:
        CheckpointNotFoundError: no such file.
        CheckpointFormatError: the file is malformed; nothing is replaced then.
        DigestMismatchError: the file is bound to another graph or tokenizer.
    """
    path = Path(path)
    payload = read_json(path, "calibration file")
    made = apply_calibration_payload(payload, calibration, where=str(path))
    if identity is not None and isinstance(payload, Mapping):
        version = _whole_version(payload.get("version"), str(path))
        check_identity(payload, version, identity, where=str(path), any_graph=any_graph)
    return made


def read_json(path: Path, what: str) -> object:
    """Read a JSON file of temperatures.

    Raises:
        CheckpointNotFoundError: no such file.
        CheckpointFormatError: it is not JSON.
    """
    if not path.is_file():
        raise CheckpointNotFoundError(f"there is no {what} {path}")
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as exc:
        raise CheckpointFormatError(f"{path} is not valid JSON ({exc})") from exc
    return content


def apply_calibration_payload(
    payload: object, calibration: Calibration, *, where: str = "calibration"
) -> Calibration:
    """Check the content of a calibration file and put it into effect."""
    if not isinstance(payload, Mapping):
        raise CheckpointFormatError(f"{where} must be a JSON object, got {payload!r}")
    _whole_version(payload.get("version"), where)
    by_type = payload.get("temperature")
    if not isinstance(by_type, list | tuple) or len(by_type) != 3:
        raise CheckpointFormatError(
            f"{where}: temperature must be a list of 3 numbers (choice, score, noul), "
            f"got {by_type!r}"
        )
    by_bucket = payload.get("temperature_by_options") or {}
    if not isinstance(by_bucket, Mapping):
        raise CheckpointFormatError(f"{where}: temperature_by_options must be an object")
    return replace(
        calibration,
        temperatures=_clamped((by_type[0], by_type[1], by_type[2]), by_bucket, where),
        binning=_binning(payload.get("binning_map"), where),
    )


def _clamped(
    by_type: Sequence[object], by_bucket: Mapping[str, object], where: str
) -> Temperatures:
    clamped = [clamp_temperature(value) for value in by_type]
    buckets = {name: clamp_temperature(value) for name, value in by_bucket.items()}
    replaced = [
        f"{name}: {given!r} -> {used}"
        for name, given, used in (
            *zip(QTYPES, by_type, clamped, strict=True),
            *((name, by_bucket[name], used) for name, used in buckets.items()),
        )
        if isinstance(given, bool) or not isinstance(given, int | float) or given != used
    ]
    if replaced:
        warnings.warn(
            f"{where} has temperatures outside [{MIN_TEMPERATURE}, {MAX_TEMPERATURE}] or not "
            f"numbers; they are replaced ({'; '.join(replaced)})",
            RuntimeWarning,
            stacklevel=2,
        )
    return Temperatures((clamped[0], clamped[1], clamped[2]), buckets)


def _by_language(config: CheckpointConfig, lang_temperatures: object) -> dict[str, Temperatures]:
    if not isinstance(lang_temperatures, Mapping):
        raise InvalidRequestError(
            f"lang_temperatures must map language codes to temperatures, got {lang_temperatures!r}"
        )
    found: dict[str, Temperatures] = {}
    for code, entry in lang_temperatures.items():
        if not isinstance(code, str) or not code.strip():
            raise InvalidRequestError(f"lang_temperatures: {code!r} is not a language code")
        found[primary_subtag(code)] = _language_entry(config, code, {} if entry is None else entry)
    return found


def _language_entry(config: CheckpointConfig, code: str, entry: object) -> Temperatures:
    if not isinstance(entry, Mapping):
        raise InvalidRequestError(
            f"lang_temperatures[{code!r}] must be None or a dict, got {entry!r}"
        )
    by_type = entry.get("temperature")
    if by_type is None:
        by_type = config.temperature
    if not isinstance(by_type, list | tuple) or len(by_type) != 3:
        raise InvalidRequestError(
            f"lang_temperatures[{code!r}]: temperature must be None or a list of 3 numbers, "
            f"got {by_type!r}"
        )
    by_bucket = entry.get("temperature_by_options") or {}
    if not isinstance(by_bucket, Mapping):
        raise InvalidRequestError(
            f"lang_temperatures[{code!r}]: temperature_by_options must be a dict, got {by_bucket!r}"
        )
    return _clamped(by_type, by_bucket, f"lang_temperatures[{code!r}]")


def _whole_version(version: object, where: str) -> int:
    """Version of a file; one that does not say is of the first."""
    if version is None:
        return 1
    if isinstance(version, int) and not isinstance(version, bool):
        return version
    if isinstance(version, float) and version.is_integer():
        return int(version)
    if isinstance(version, str) and version.strip().isdecimal() and len(version) <= _VERSION_DIGITS:
        return int(version)
    raise CheckpointFormatError(f"{where}: version must be a whole number, got {version!r}")


def _binning(value: object, where: str) -> dict[str, tuple[float, ...]] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise CheckpointFormatError(f"{where}: binning_map must be an object, got {value!r}")
    return {name: _bins(name, entry, where) for name, entry in value.items()}


def _bins(name: str, entry: Any, where: str) -> tuple[float, ...]:
    bins = entry.get("bins") if isinstance(entry, Mapping) else None
    values = entry.get("values") if isinstance(entry, Mapping) else None
    if type(bins) is not int or bins < 1 or not isinstance(values, list) or len(values) != bins:
        raise CheckpointFormatError(
            f"{where}: binning_map[{name!r}] must hold a whole number of bins (1 or more) and as "
            f"many values, got {entry!r}"
        )
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise CheckpointFormatError(
                f"{where}: values of binning_map[{name!r}] must lie in [0, 1], got {value!r}"
            )
    return tuple(float(value) for value in values)
