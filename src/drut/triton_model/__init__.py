"""The decision model inside Triton: texts and questions in, answers out.

A repository's `<name>_decision/1/model.py` imports `drut.triton_model.model` and nothing else.
"""

from typing import Final

DECISION_SUFFIX: Final = "_decision"
"""What follows a bundle's name in the name of its decision model."""

STATE: Final = "STATE"
QUESTIONS: Final = "QUESTIONS"
OPTIONS: Final = "OPTIONS"
ANSWERS: Final = "ANSWERS"
"""Its tensors, all of them texts [rows, 1]."""

MAX_ROWS: Final = 64
"""Rows of one pass, over all requests that Triton merges; both models are told this."""

MAX_QUEUED: Final = 256
"""Requests that the decision model holds; a further one is refused at once, before any work."""

METRIC: Final = "drut_open_requests"
"""Name of the gauge of requests that a decision model has taken and not answered."""

CPU_PADDING: Final = 0.5
"""Share of padding in a pass of a graph on a CPU. More than inside one process, because a pass
costs more here: docs/decisions/0013-mixed-lengths-on-triton.md."""

CPU_TOKENS: Final = 2048
"""Padded tokens of such a pass, more than inside one process for the same reason."""
