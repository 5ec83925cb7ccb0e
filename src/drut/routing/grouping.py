"""Which requests of one checkpoint can share a forward pass. Pure."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final

from drut.hooks.context import PredictContext

_ATOMS: Final = (str, bytes, int, float, complex, bool, type(None))
_DEEPEST: Final = 64


def group_contexts(
    contexts: Iterable[PredictContext], extra: Callable[[PredictContext], Hashable]
) -> list[list[PredictContext]]:
    """Group the contexts that no hook answered, in order of first appearance.

    Contexts share a group if their questions are the same in content, order and types, and so
    are their token budgets and `extra(ctx)`.
    """
    groups: dict[Hashable, list[PredictContext]] = {}
    seen: dict[int, Hashable] = {}  # id of a questions object to its frozen form
    for ctx in contexts:
        if ctx.results is not None:
            continue
        questions = seen.get(id(ctx.questions))
        if questions is None:
            questions = seen[id(ctx.questions)] = freeze(ctx.questions)
        key = (questions, freeze(ctx.max_len), freeze(ctx.head_max_len), extra(ctx))
        groups.setdefault(key, []).append(ctx)
    return list(groups.values())


def freeze(value: Any, depth: int = 0) -> Hashable:
    """Return a key that is equal only for values with the same content, order and types.

    Objects other than JSON values are the same only if they are one object.
    """
    kind = type(value)
    if kind in _ATOMS:
        # repr tells 0.0 from -0.0 and makes nan equal to itself.
        return kind, repr(value) if kind in (float, complex) else value
    if depth < _DEEPEST:
        if isinstance(value, Mapping):
            pairs = [(freeze(key, depth + 1), freeze(value[key], depth + 1)) for key in value]
            return kind, tuple(pairs)
        if isinstance(value, list | tuple):
            return kind, tuple(freeze(each, depth + 1) for each in value)
    return "object", id(value)
