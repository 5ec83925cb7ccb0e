"""The dictionaries that cross the border: what callers pass in and get back. All of it is JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

State: TypeAlias = Any
"""What is asked about: a string, or any JSON value (dict, list, number ...) except None."""

QuestionId: TypeAlias = str | int
QuestionDef: TypeAlias = Mapping[str, Any]
"""One question: `type`, `instructions`, `criteria`, optional `labels` and `option_order`."""

Questions: TypeAlias = Mapping[Any, Any]
"""Question id to `QuestionDef`. As wide as this because a literal dict is inferred too narrowly."""
QuestionType: TypeAlias = Literal["choice", "score", "noul"]

MinConfidence: TypeAlias = float | Mapping[str, float]
"""Abstention threshold in [0, 1]: one for all, or one per `<type>:<size>` bucket and `default`."""

OnTruncation: TypeAlias = Literal["ignore", "warn", "error"]


class Action(TypedDict):
    """What the act head says."""

    act_probability: float


class _Gated(TypedDict, total=False):
    abstention: Literal["passed", "abstained", "unevaluated"]
    abstention_threshold: float
    low_confidence: bool
    window: dict[str, int]


class ChoiceAnswer(_Gated):
    """Answer to a `choice` question; labels are the caller's own objects."""

    type: Literal["choice"]
    choice: Any
    probabilities: dict[Any, float]
    confidence: float  # 1 - entropy / ln(options), in [0, 1]
    answer_confidence: float  # largest probability, binned where a calibration map says so
    action: Action


class ScoreAnswer(_Gated):
    """Answer to a `score` question."""

    type: Literal["score"]
    score: float  # expected level
    legend: dict[str, str]
    probabilities: dict[str, float]
    confidence: float
    answer_confidence: float
    action: Action


class NoulAnswer(_Gated):
    """Answer to a yes/no question."""

    type: Literal["noul"]
    noul: float  # probability of yes
    confidence: float
    answer_confidence: float
    action: Action


Answer: TypeAlias = ChoiceAnswer | ScoreAnswer | NoulAnswer


class OptionUsage(TypedDict):
    """How far the options of one question are still distinct after cutting."""

    total: int
    distinct: int
    tokens_per_option: int | None


class QuestionUsage(TypedDict):
    """What one question kept and lost. Counts are tokens."""

    tokens: int  # length of the row the model saw
    head_tokens: int  # instructions and options, uncut
    head_tokens_dropped: int
    state_tokens: int
    state_tokens_kept: int
    state_tokens_dropped: int
    state_cut: Literal["start", "end"] | None  # the side that was cut
    options: int
    options_distinct: int
    tokens_per_option: int | None  # the cut applied to every option, None where none was needed


class Usage(TypedDict, total=False):
    """Token counts of one result. The first two are always there."""

    input_tokens: int
    output_tokens: int
    state_tokens: int
    state_tokens_dropped: int
    truncated: bool
    truncated_questions: list[QuestionId]
    options: dict[QuestionId, OptionUsage]
    questions: dict[QuestionId, QuestionUsage]
    windows: int


class Prediction(TypedDict, total=False):
    """The answers to all questions about one state."""

    model: str
    answers: dict[QuestionId, Answer]
    usage: Usage
    routing: dict[str, Any]


States: TypeAlias = Sequence[State]
