"""Draws training examples from the bank and WordNet: random questions, options, orders, states."""

import random
from collections.abc import Callable, Sequence
from typing import Final

from starter import phrases
from starter.bank import Label, Schema
from starter.examples import (
    Example,
    choice_option,
    meaning,
    noul_options,
    score_options,
    shuffled,
)
from starter.grammar import expand
from starter.noise import dress, is_about_wording
from starter.similar import Relations, WordRelations
from starter.styles import Style, capitalised, plain, random_style
from starter.wordnet import WordNet
from starter.wordnet_tasks import wordnet_example

MIX: Final = (
    ("choice", 0.38),
    ("cross", 0.09),
    ("closest", 0.02),
    ("noul", 0.20),
    ("noul_label", 0.09),
    ("score", 0.13),
    ("score_asked_otherwise", 0.03),
    ("wordnet", 0.06),
)
SWAPPED_SHARE: Final = 0.15  # yes/no questions that show "true" first
UNSORTED_SHARE: Final = 0.10  # score questions whose levels stand in a random order

Option = tuple[str, str, bool]  # text, meaning, right


class Generator:
    """An endless, seeded stream of examples.

    Args:
        schemas: the bank.
        seed: everything drawn follows from it.
        relations: which labels are far apart; by shared words if not given.
        net: WordNet, or None to make no questions from it.
    """

    def __init__(
        self,
        schemas: Sequence[Schema],
        seed: int = 0,
        relations: Relations | None = None,
        net: WordNet | None = None,
    ) -> None:
        self.rng = random.Random(seed)
        self.relations = relations or WordRelations()
        self.net = net
        self.choices = [schema for schema in schemas if schema.kind == "choice"]
        self.nouls = [schema for schema in schemas if schema.kind == "noul"]
        self.scores = [schema for schema in schemas if schema.kind == "score"]
        self.labels = [(schema, label) for schema in self.choices for label in schema.labels]
        self.names = sorted({name for _, label in self.labels for name in label.names})
        self._tasks: dict[str, Callable[[], Example]] = {
            "choice": self.choice,
            "cross": self.cross,
            "closest": self.closest,
            "noul": self.noul,
            "noul_label": self.noul_label,
            "score": self.score,
            "score_asked_otherwise": self.score_asked_otherwise,
            "wordnet": self.wordnet,
        }

    def sample(self) -> Example:
        """Draw one example of a random task."""
        names, weights = zip(*MIX, strict=True)
        return self._tasks[self.rng.choices(names, weights)[0]]()

    def choice(self) -> Example:
        """Some labels of one schema, sometimes with foreign ones or an "other" option."""
        rng = self.rng
        schema = self._weighted(self.choices)
        count = min(len(schema.labels), rng.choice((2, 3, 3, 4, 4, 5, 5, 5, 6, 7, 8, 10)))
        shown = rng.sample(schema.labels, count)
        right = rng.choice(shown)
        style, described = random_style(rng), rng.random() < 0.3
        options = [self._option(label, style, described, label is right) for label in shown]
        text = rng.choice(right.texts)
        if rng.random() < 0.15:
            options += self._foreign(schema, right, style, described)
        if rng.random() < 0.12:
            options, text = self._with_other(schema, shown, options, text, style)
        return self._choice(self._question(schema), options, *self._state(schema, text))

    def cross(self) -> Example:
        """Labels of different schemas under a generic question."""
        rng = self.rng
        schema, right = rng.choice(self.labels)
        shown = [right]
        count = rng.choice((2, 3, 4, 5, 6, 8))
        for _ in range(40):
            if len(shown) == count:
                break
            other_schema, label = rng.choice(self.labels)
            plainly_other = other_schema is not schema and not is_about_wording(other_schema.domain)
            if plainly_other and all(self.relations.far(label, known) for known in shown):
                shown.append(label)
        if len(shown) < 2:
            return self.choice()
        style, described = random_style(rng), rng.random() < 0.2
        options = [self._option(label, style, described, label is right) for label in shown]
        question = rng.choice(phrases.GENERIC_QUESTIONS)
        return self._choice(question, options, *self._state(schema, rng.choice(right.texts)))

    def closest(self) -> Example:
        """One text of each label as the options; the state is another text of one of them."""
        rng = self.rng
        schema = self._weighted(self.choices)
        shown = rng.sample(schema.labels, min(4, len(schema.labels)))
        right = rng.choice(shown)
        first, second = rng.sample(right.texts, 2)
        options = []
        for label in shown:
            text = expand(second if label is right else rng.choice(label.texts), rng)
            options.append((text, text, label is right))
        core = expand(first, rng)
        question = rng.choice(phrases.SIMILAR_QUESTIONS)
        return self._choice(question, options, dress(core, rng, social=False), core)

    def noul(self) -> Example:
        """A yes/no schema's question with one of its texts."""
        rng = self.rng
        schema = self._weighted(self.nouls)
        holds = rng.random() < 0.5
        text = rng.choice(schema.yes if holds else schema.no)
        unrelated = self.relations.unrelated(schema)
        if not holds and unrelated and rng.random() < 0.1:
            text = rng.choice(unrelated)
        question = self._noul_question(rng.choice(schema.questions))
        state, core = self._state(schema, text)
        if rng.random() < 0.06:
            words = rng.choice((("yes", "no"), ("Yes", "No"), ("true", "false"), ("it is", "not")))
            options = [(words[0], question, holds), (words[1], "no", not holds)]
            return self._choice(question, options, state, core)
        return self._noul(question, holds, state, core)

    def noul_label(self) -> Example:
        """Whether a text belongs to a label; wrong ones mostly come from the same schema."""
        rng = self.rng
        schema, label = rng.choice(self.labels)
        holds = rng.random() < 0.5
        owner, source = label, schema
        if not holds and rng.random() < 0.75:
            owner = rng.choice([other for other in schema.labels if other is not label])
        elif not holds:
            source, owner = self._far_label(label)
        text = rng.choice(owner.texts)
        named = label.description if label.description and rng.random() < 0.3 else ""
        name = named or rng.choice(label.names)
        if rng.random() < 0.25:
            question = f'{rng.choice(schema.questions)} Is it "{name}"?'
        else:
            question = rng.choice(phrases.LABEL_QUESTIONS).format(x=name)
        return self._noul(question, holds, *self._state(schema if holds else source, text))

    def score(self) -> Example:
        """A score schema's question; a level may be missing, the scale may be turned round."""
        rng = self.rng
        schema = self._weighted(self.scores)
        right = rng.randrange(len(schema.labels))
        kept = list(range(len(schema.labels)))
        if len(kept) > 3 and rng.random() < 0.3:
            kept.remove(rng.choice([level for level in kept if level != right]))
        style = random_style(rng) if rng.random() < 0.6 else plain
        levels = [style(rng.choice(schema.labels[level].names)) for level in kept]
        if len(set(levels)) < len(levels):
            return self.score()
        question, answer = self._score_question(schema), kept.index(right)
        anchors = tuple(meaning(level) for level in levels)
        draw = rng.random()
        if draw < 0.10:
            levels, answer, anchors = levels[::-1], len(levels) - 1 - answer, anchors[::-1]
        elif draw < 0.20:
            levels = [f"{index + 1} - {level}" for index, level in enumerate(levels)]
        elif draw < 0.24:
            question = f"{question} ({levels[0]} to {levels[-1]})"
            levels = [str(index + 1) for index in range(len(levels))]
        elif draw < 0.30:
            levels = [self._described_level(schema.labels[level], style) for level in kept]
        state, core = self._state(schema, rng.choice(schema.labels[right].texts))
        unsorted = rng.random() < UNSORTED_SHARE
        return Example(
            kind="score",
            instructions=question,
            options=score_options(levels),
            answer=answer,
            state=state,
            anchors=anchors,
            core=core,
            order=shuffled(len(levels), rng) if unsorted else (),
            source="score",
        )

    def score_asked_otherwise(self) -> Example:
        """The levels of a score schema as a choice, or one of them as a yes/no question."""
        rng = self.rng
        schema = self._weighted(self.scores)
        right = rng.choice(schema.labels)
        state, core = self._state(schema, rng.choice(right.texts))
        question = self._score_question(schema)
        if rng.random() < 0.5:
            style = random_style(rng)
            options = [self._option(label, style, False, label is right) for label in schema.labels]
            return self._choice(question, options, state, core)
        holds = rng.random() < 0.5
        place = schema.labels.index(right)
        reach = 1 if len(schema.labels) > 3 else 0
        others = [label for i, label in enumerate(schema.labels) if abs(i - place) > reach]
        asked = right if holds or not others else rng.choice(others)
        question = f'{question} Is it "{rng.choice(asked.names)}"?'
        return self._noul(question, asked is right, state, core)

    def wordnet(self) -> Example:
        """A question about words, or a choice where WordNet is not there."""
        return wordnet_example(self.net, self.rng) if self.net else self.choice()

    def similarity(self) -> Example:
        """Random options for a random state: no right answer, only similarities to keep."""
        rng = self.rng
        draw = rng.random()
        count = rng.choice((2, 3, 4, 5, 6))
        if self.net is None or draw < 0.5:
            words = rng.sample(self.names, count)
        elif draw < 0.75:
            words = [self.net.synsets[key].words[0] for key in rng.sample(self.net.kinds, count)]
        else:
            words = rng.sample(self.names, count - 1)
            words.append(self.net.synsets[rng.choice(self.net.kinds)].words[0])
        style = random_style(rng)
        core = self._any_text()
        options = [(style(word), meaning(word), False) for word in dict.fromkeys(words)]
        return self._choice(
            rng.choice(phrases.GENERIC_QUESTIONS), options, dress(core, rng), core, soft=True
        )

    def _any_text(self) -> str:
        if self.net is not None and self.rng.random() < 0.45:
            synset = self.net.synsets[self.rng.choice(self.net.common)]
            return self.rng.choice((synset.definition, *synset.examples))
        return expand(self.rng.choice(self.rng.choice(self.labels)[1].texts), self.rng)

    def _weighted(self, schemas: Sequence[Schema]) -> Schema:
        weights = [len(schema.texts()) ** 0.5 for schema in schemas]
        return self.rng.choices(schemas, weights)[0]

    def _state(self, schema: Schema, text: str) -> tuple[str, str]:
        """The state of an example and its core."""
        core = expand(text, self.rng)
        wording = is_about_wording(" ".join([schema.domain, *schema.questions]))
        return dress(core, self.rng, social=not wording), core

    def _option(self, label: Label, style: Style, described: bool, right: bool) -> Option:
        rng = self.rng
        name = rng.choice(label.names)
        if described and label.description:
            return self._joined(style(name), label.description), name, right
        if described and len(label.names) > 1:
            one, two = rng.sample(label.names, 2)
            return choice_option(style(one), two), one, right
        return style(name), meaning(name), right

    def _joined(self, name: str, description: str) -> str:
        if self.rng.random() < 0.75:
            return choice_option(name, description)
        return f"{name}{self.rng.choice((' - ', ' — ', ': '))}{capitalised(description)}"

    def _described_level(self, label: Label, style: Style) -> str:
        names = self.rng.sample(label.names, min(2, len(label.names)))
        return ", ".join([style(names[0]), *names[1:]])

    def _foreign(self, schema: Schema, right: Label, style: Style, described: bool) -> list[Option]:
        found: list[Option] = []
        for _ in range(self.rng.randint(1, 3)):
            other_schema, label = self.rng.choice(self.labels)
            if other_schema is not schema and self.relations.far(label, right):
                found.append(self._option(label, style, described, False))
        return found

    def _with_other(
        self,
        schema: Schema,
        shown: Sequence[Label],
        options: list[Option],
        text: str,
        style: Style,
    ) -> tuple[list[Option], str]:
        """Add an "other" option, which is the right one if the text's label is not offered."""
        rng = self.rng
        name = rng.choice(phrases.OTHER_OPTIONS)
        missing = [label for label in schema.labels if label not in shown]
        if missing and len(options) > 1 and rng.random() < 0.35:
            wrong = [(option, sense, False) for option, sense, _ in options]
            return [*wrong, (style(name), name, True)], rng.choice(rng.choice(missing).texts)
        return [*options, (style(name), name, False)], text

    def _far_label(self, label: Label) -> tuple[Schema, Label]:
        for _ in range(200):
            schema, other = self.rng.choice(self.labels)
            if other is not label and self.relations.far(label, other):
                return schema, other
        return next((schema, other) for schema, other in self.labels if other is not label)

    def _question(self, schema: Schema) -> str:
        rng = self.rng
        generic = rng.random() < 0.2
        text = rng.choice(phrases.GENERIC_QUESTIONS if generic else schema.questions)
        if rng.random() < 0.1:
            tails = (
                *phrases.QUESTION_TAILS,
                *((f"Domain: {schema.domain}.",) * bool(schema.domain)),
            )
            text = f"{text} {rng.choice(tails)}"
        return text.lower() if rng.random() < 0.1 else text

    def _noul_question(self, question: str) -> str:
        rng = self.rng
        if rng.random() < 0.1:
            question = question.lower().rstrip("?")
        if rng.random() < 0.07:
            question = f"{question} {rng.choice(phrases.NOUL_TAILS)}"
        return question

    def _score_question(self, schema: Schema) -> str:
        question = self.rng.choice(schema.questions)
        return question.lower().rstrip("?") if self.rng.random() < 0.1 else question

    def _choice(
        self, question: str, options: list[Option], state: str, core: str, *, soft: bool = False
    ) -> Example:
        # The right option first, so that a wrong one of the same text goes, not the right one.
        options = sorted(options, key=lambda option: not option[2])
        unique = list({option[0]: option for option in reversed(options)}.values())
        self.rng.shuffle(unique)
        texts, senses, right = zip(*unique, strict=True)
        return Example(
            kind="choice",
            instructions=question,
            options=tuple(texts),
            answer=0 if soft else right.index(True),
            state=state,
            anchors=tuple(senses),
            core=core,
            soft=soft,
            source="similarity" if soft else "choice",
        )

    def _noul(self, question: str, holds: bool, state: str, core: str) -> Example:
        rng = self.rng
        draw = rng.random()
        texts, labels = phrases.NOUL_TEXTS, ("false", "true")
        if draw < 0.05:
            texts = rng.choice(phrases.NOUL_OTHER_TEXTS)
        elif draw < 0.10:
            labels = ("no", "yes")
        return Example(
            kind="noul",
            instructions=question,
            options=noul_options(texts, labels),
            answer=int(holds),
            state=state,
            anchors=("no", question),
            core=core,
            order=(1, 0) if rng.random() < SWAPPED_SHARE else (),
            source="noul",
        )
