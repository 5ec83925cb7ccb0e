"""One long state becomes windows, and the answers about the windows become one answer."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drut.errors import InvalidRequestError
from drut.schema import Prediction

MIN_WINDOW: Final = 64
SEPARATORS: Final = 8
"""Tokens set aside beside the head when the default window is chosen."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Windows of a state that is too long for one pass. Counts are tokens."""

    size: int
    step: int
    default: int  # the window chosen where the caller names none

    def spans(self, tokens: int) -> list[tuple[int, int]]:
        """Start and end of every window; the last one reaches the end."""
        spans, start = [], 0
        while True:
            end = min(tokens, start + self.size)
            spans.append((start, end))
            if end >= tokens:
                return spans
            start += self.step

    def batch_size(self, windows: int) -> int | None:
        """Windows scored together where the caller sets no batch size.

        Windows shortened by long questions are more numerous; this keeps a pass about as large
        as one over windows of the default size.
        """
        if self.size >= self.default:
            return None
        unit = -(-windows * max(1, self.size // 2) // max(1, self.default // 2))
        unit = max(1, unit)
        return unit if windows > 2 * unit else None


def plan_windows(
    *, window: int | None, stride: int | None, default: int, room: int | None
) -> WindowPlan:
    """Choose window and stride.

    Args:
        window: tokens of a window as asked for; None or less than 1 means `default`.
        stride: tokens between window starts; None or less than 1 means half a window.
        default: the checkpoint's own window.
        room: state tokens that fit beside the longest question, None without questions.

    Raises:
        InvalidRequestError: no room for any state, or a stride that would skip tokens.
    """
    asked = window if window is not None and window > 0 else None
    wanted = asked or default
    size = wanted if room is None else min(wanted, room)
    if size <= 0:
        raise InvalidRequestError("the questions leave no room for any token of the state")
    if asked is not None and size < asked:
        _warn(f"window={asked} does not fit beside the questions and is cut to {size} tokens")
    elif asked is None and size <= default // 2:
        _warn(f"the questions leave windows of {size} tokens instead of {default}")
    given = stride if stride is not None and stride > 0 else None
    step = given or max(1, size // 2)
    if step > size:
        if size == wanted or step > wanted:
            raise InvalidRequestError(
                f"stride={step} is larger than the window of {size} tokens, so parts of the state "
                "would never be read"
            )
        step = max(1, size // 2)
        _warn(f"stride={given} is larger than the shortened window and is cut to {step}")
    return WindowPlan(size, step, default)


def default_window(max_len: int, head_max_len: int) -> int:
    """Window of a checkpoint where none is asked for."""
    return max(MIN_WINDOW, max_len - head_max_len - SEPARATORS)


def merge_windows(
    results: Sequence[Prediction], spans: Sequence[tuple[int, int]] | None
) -> Prediction:
    """Pick, per question, the window that answers it most clearly.

    A yes/no question takes the window with the largest probability of yes, the others the one
    with the largest `answer_confidence`; the first of equals wins.

    Args:
        results: one per window, at least one.
        spans: start and end of every window, None where a hook replaced the windows.
    """
    merged: dict[Any, Any] = {}
    for question_id in results[0].get("answers", {}):
        index = max(
            range(len(results)), key=lambda at: _clarity(results[at]["answers"][question_id])
        )
        answer: dict[str, Any] = dict(results[index]["answers"][question_id])
        if spans is not None:
            start, end = spans[index]
            answer["window"] = {
                "index": index,
                "token_start": start,
                "token_end": end,
                "count": len(spans),
            }
        merged[question_id] = answer
    usage = _sum_usage([dict(result.get("usage", {})) for result in results])
    usage["output_tokens"] = 0
    usage["windows"] = len(results)
    return {**results[0], "answers": merged, "usage": usage}  # type: ignore[typeddict-item]


def _clarity(answer: Mapping[str, Any]) -> float:
    return float(answer["noul"] if answer["type"] == "noul" else answer["answer_confidence"])


def _sum_usage(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add numbers up (a flag becomes a count), merge dicts, keep the last window's lists."""
    total: dict[str, Any] = {}
    for usage in usages:
        for key, value in usage.items():
            if isinstance(value, int | float):
                total[key] = total.get(key, 0) + value
            elif isinstance(value, Mapping):
                total[key] = {**total.get(key, {}), **value}
            else:
                total[key] = value
    return total


def _warn(message: str) -> None:
    warnings.warn(message, RuntimeWarning, stacklevel=4)
