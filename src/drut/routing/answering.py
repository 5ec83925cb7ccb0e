"""What happens between the start hooks and the end hooks of a routed request."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drut.decoding.gate import Gate
from drut.errors import InvalidRequestError, InvalidTypeError
from drut.hooks.context import PredictContext
from drut.questions import shorten
from drut.routing.agents import AgentHandle
from drut.routing.decision import RouteDecision, copy_plain
from drut.routing.grouping import group_contexts
from drut.routing.policy import language_for
from drut.routing.requests import RouteRequest
from drut.schema import Prediction
from drut.usage import total_usage

_Ask = Callable[[Any, Any, dict[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Routed:
    """A request with the checkpoint that answers it."""

    request: RouteRequest
    decision: RouteDecision
    name: str  # canonical; the decision may hold an alias, as a hook wrote it
    run_id: str  # of the request, from on_route to on_predict_end

    def context(self, agent: object, router: object, *, document: bool = False) -> PredictContext:
        """The context of the predict events, with a decision of its own."""
        request = self.request
        return PredictContext(
            [request.state],
            request.questions,
            decision=RouteDecision(copy_plain(self.decision)),
            model=self.name,
            agent=agent,
            router=router,
            max_len=request.max_len,
            head_max_len=request.head_max_len,
            lang=self.language,
            run_id=self.run_id,
            document=document,
        )

    @property
    def language(self) -> str | None:
        """The language the agent is told."""
        return language_for(self.request, self.decision)


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """How the requests of one call are answered."""

    gate: Gate | None = None
    agent: Mapping[str, Any] | None = None  # further arguments of the agent's method

    def of(self, ctx: PredictContext) -> dict[str, Any]:
        """Keyword arguments for the agent: only what is set."""
        options = {"lang": ctx.lang, "max_len": ctx.max_len, "head_max_len": ctx.head_max_len}
        options.update(self.agent or {})
        return {name: value for name, value in options.items() if value is not None}


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """How the requests of a batch shared forward passes."""

    sizes: tuple[int, ...]


def answer_one(
    ctx: PredictContext, routed: Routed, handle: AgentHandle, options: AnswerOptions
) -> None:
    """Answer one request, unless a start hook has."""
    _answer(ctx, routed, handle.system_one, options)


def answer_long(
    ctx: PredictContext, routed: Routed, handle: AgentHandle, options: AnswerOptions
) -> None:
    """Answer one request about a state of any length, unless a start hook has."""
    answered = _answer(ctx, routed, handle.predict_long, options)
    if answered and ctx.results is not None:
        result = ctx.results[0]
        ctx.results = [{**result, "usage": {**(result.get("usage") or {}), "windows": 0}}]


def answer_group(
    calls: Sequence[tuple[PredictContext, Routed]], handle: AgentHandle, options: AnswerOptions
) -> GroupSizes:
    """Answer the requests of one checkpoint with as few forward passes as they allow."""
    routed_of = dict(calls)
    waiting = {ctx for ctx, _ in calls if ctx.results is None}
    for ctx, routed in calls:
        if ctx not in waiting:
            _complete(ctx, routed, options.gate, answered=True)

    def language(ctx: PredictContext) -> str | None:
        return ctx.lang if handle.by_language else None

    groups = group_contexts((ctx for ctx, _ in calls), language)
    for group in groups:
        first = group[0]
        given = options.of(first)
        if not handle.by_language:
            given.pop("lang", None)
        states = [_only_state(ctx) for ctx in group]
        results = handle.predict_batch(states, first.questions, given)
        for ctx, result in zip(group, results, strict=True):
            ctx.results = [result]
            _complete(ctx, routed_of[ctx], options.gate, answered=False)
    return GroupSizes(tuple(len(group) for group in groups))


def result_of(ctx: PredictContext) -> Prediction:
    """The result as the end hooks left it.

    Raises:
        InvalidRequestError: an end hook took it away.
    """
    if not ctx.results:
        raise InvalidRequestError(
            f"an end hook left ctx.results={shorten(ctx.results)}; it must keep a list with one "
            "result"
        )
    return ctx.results[0]


def sorting_report(groups: Iterable[GroupSizes], batch_size: int | None) -> dict[str, int]:
    """How far `sort_by_length` could help: groups, how many were reordered, and their sizes."""
    sizes = [size for group in groups for size in group.sizes]
    reordered = [size for size in sizes if batch_size is not None and 1 < batch_size < size]
    return {
        "groups": len(sizes),
        "reordered": len(reordered),
        "smallest": min(sizes, default=0),
        "largest": max(sizes, default=0),
    }


def _answer(ctx: PredictContext, routed: Routed, ask: _Ask, options: AnswerOptions) -> bool:
    """Answer one request; returns whether a start hook had done so already."""
    answered = ctx.results is not None
    if not answered:
        ctx.results = [ask(_only_state(ctx), ctx.questions, options.of(ctx))]
    _complete(ctx, routed, options.gate, answered=answered)
    return answered


def _only_state(ctx: PredictContext) -> Any:
    states = ctx.states
    if not isinstance(states, list | tuple):
        raise InvalidTypeError(
            f"a start hook left ctx.states={shorten(states)}; it must be a list with one state"
        )
    if len(states) != 1:
        raise InvalidRequestError(
            f"a start hook left {len(states)} states; a request to the Router has exactly one, "
            "use predict_batch for more"
        )
    return states[0]


def _complete(ctx: PredictContext, routed: Routed, gate: Gate | None, *, answered: bool) -> None:
    """Check what there is, add `routing`, judge by the gate and sum the usage."""
    usage = total_usage(ctx.results)
    results: Sequence[Any] = ctx.results or ()
    if len(results) != 1:
        raise InvalidRequestError(
            f"a start hook answered with {len(results)} results; a request to the Router has "
            "exactly one"
        )
    # A copy: the result may lie in a hook's cache, or be one object for several states.
    result = dict(results[0])
    if not answered or "routing" not in result:
        result["routing"] = copy_plain(routed.decision)
    if gate is not None:
        result["answers"] = copy_plain(result.get("answers") or {})
        gate.apply([result])
    ctx.results = [result]  # type: ignore[list-item]
    ctx.usage = usage
