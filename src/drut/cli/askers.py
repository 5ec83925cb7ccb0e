"""Who answers `drut predict`: one checkpoint, or whichever a Router chooses."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drut.agent import DecisionAgent
from drut.checkpoint.bundle import versions
from drut.cli.answering import Asker, AskOptions
from drut.loading import DEFAULT_CHECKPOINT, load
from drut.questions import parse_questions
from drut.router import Router
from drut.routing.catalog import ENGLISH, MULTILINGUAL, TYPED_DECISIONS
from drut.schema import OnTruncation, Prediction, Questions, State
from drut.settings import model_repositories

ROUTED: Final = (ENGLISH, MULTILINGUAL, TYPED_DECISIONS)
"""Checkpoints among which text is routed, once one of them is exported."""


def open_asker(
    checkpoint: str | None,
    device: str | None,
    questions: Questions,
    options: AskOptions,
    calibrated: Mapping[str, Any] | None = None,
    engine: Mapping[str, Any] | None = None,
) -> Asker:
    """Open what answers: the named checkpoint; else a Router, if there is anything to route to.

    Args:
        checkpoint: name or directory of a bundle.
        device: as for `drut.Agent`.
        questions: what is asked about every state.
        options: how states are answered.
        calibrated: arguments of `drut.Agent` about calibration. They belong to one checkpoint, so
            nothing is routed with them.
        engine: arguments of `drut.Agent` and of `Router` about the runtime.

    Raises:
        DrutError: it cannot be opened.
    """
    if checkpoint is None and not calibrated and any_exported(ROUTED):
        return RoutedAsker(Router(device=device, **(engine or {})), questions, options)
    name = DEFAULT_CHECKPOINT if checkpoint is None else checkpoint
    agent = load(name, device=device, **(calibrated or {}), **(engine or {}))
    return AgentAsker(agent, questions, options)


def any_exported(names: Sequence[str]) -> bool:
    """Whether a model repository holds a bundle of one of these names."""
    return any(versions(place / name) for place in model_repositories() for name in names)


class AgentAsker(Asker):
    """One checkpoint answers everything."""

    def __init__(self, agent: DecisionAgent, questions: Questions, options: AskOptions) -> None:
        super().__init__(questions, options)
        self.agent = agent

    def check(self) -> None:
        self.agent.state_capacity(
            self.questions, max_len=self.options.max_len, head_max_len=self.options.head_max_len
        )

    def facts(self, result: Prediction) -> str:
        facts = self.agent.describe()
        version = "" if facts["version"] is None else f" version {facts['version']}"
        return f"{facts['model_id']}{version}, {facts['precision']}, on {facts['device']}"

    def close(self) -> None:
        self.agent.close()

    def _ask(self, states: Sequence[State], on_truncation: OnTruncation) -> list[Prediction]:
        options = self.options
        return self.agent.predict_batch(
            states,
            self.questions,
            options.batch_size,
            options.lang,
            max_len=options.max_len,
            head_max_len=options.head_max_len,
            min_confidence=options.min_confidence,
            on_truncation=on_truncation,
        )

    def _ask_long(self, state: State) -> Prediction:
        return self.agent.predict_long(
            state, self.questions, batch_size=self.options.batch_size, lang=self.options.lang
        )


class RoutedAsker(Asker):
    """A Router chooses the checkpoint of each state."""

    def __init__(self, router: Router, questions: Questions, options: AskOptions) -> None:
        super().__init__(questions, options)
        self.router = router

    def check(self) -> None:
        parse_questions(self.questions)

    def facts(self, result: Prediction) -> str:
        routing = result["routing"]
        return f"{routing['model']}: {routing['reason']}"

    def close(self) -> None:
        self.router.close()

    def _ask(self, states: Sequence[State], on_truncation: OnTruncation) -> list[Prediction]:
        options = self.options
        given = {
            "lang": options.lang,
            "max_len": options.max_len,
            "head_max_len": options.head_max_len,
        }
        return self.router.predict_batch(
            [{"state": state, "questions": self.questions, **given} for state in states],
            options.batch_size,
            min_confidence=options.min_confidence,
            on_truncation=on_truncation,
        )

    def _ask_long(self, state: State) -> Prediction:
        return self.router.predict_long(
            state, self.questions, lang=self.options.lang, batch_size=self.options.batch_size
        )
