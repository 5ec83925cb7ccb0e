"""Token totals over the results of a call, whoever made them."""

from collections.abc import Mapping, Sequence

from drut.errors import InvalidTypeError
from drut.schema import Usage


def total_usage(results: object) -> Usage:
    """Sum `input_tokens` and `output_tokens`; a result without usage counts as nothing.

    Raises:
        InvalidTypeError: a result, or its usage, is not a dict. Such results come from hooks.
    """
    if not isinstance(results, Sequence) or isinstance(results, str | bytes):
        raise InvalidTypeError(f"results must be a list, got {type(results).__name__}")
    return {
        "input_tokens": sum(
            _tokens(result, "input_tokens", at) for at, result in enumerate(results)
        ),
        "output_tokens": sum(
            _tokens(result, "output_tokens", at) for at, result in enumerate(results)
        ),
    }


def _tokens(result: object, key: str, index: int) -> int:
    if not isinstance(result, Mapping):
        raise InvalidTypeError(
            f"result {index} must be a dict with answers, got {type(result).__name__}; "
            "did a hook skip with something else?"
        )
    usage = result.get("usage") or {}
    if not isinstance(usage, Mapping):
        raise InvalidTypeError(
            f"usage of result {index} must be a dict, got {type(usage).__name__}"
        )
    value = usage.get(key, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
