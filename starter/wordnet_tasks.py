"""Questions made from WordNet: they teach the model words it meets in no hand-written text."""

import random
import re
from typing import Final

from starter.examples import Example, choice_option, meaning, noul_options
from starter.noise import dress
from starter.styles import random_style
from starter.wordnet import SUBJECTS, Synset, WordNet, subject_is_verbal

WORD_QUESTIONS: Final = (
    "Which word fits the definition?",
    "What is described?",
    "Pick the term",
    "Which option is meant?",
    "Name the thing.",
)
KIND_QUESTIONS: Final = (
    "What kind of thing is it?",
    "Which category?",
    "Type of thing",
    "Is a kind of",
    "Classify the term.",
)
SUBJECT_QUESTIONS: Final = (
    "Domain of the term",
    "Which area does this belong to?",
    "What is this about?",
    "Subject",
)
IS_A_QUESTIONS: Final = (
    "Is it a kind of {x}?",
    "Is this a type of {x}?",
    "Does the term mean a {x}?",
    "Is this about a {x}?",
)
DEFINES_QUESTIONS: Final = ('Does it define "{x}"?', 'Is "{x}" meant?', "Is {x} described here?")


def wordnet_example(net: WordNet, rng: random.Random) -> Example:
    """Draw one question of a random sort."""
    synset = net.synsets[rng.choice(net.common)]
    draw = rng.random()
    made: Example | None = None
    if draw < 0.25:
        made = _definition_to_word(net, synset, rng)
    elif draw < 0.5:
        made = _word_to_kind(net, synset, rng)
    elif draw < 0.62:
        made = _subject(synset, rng)
    elif draw < 0.8:
        made = _sense_in_context(net, synset, rng)
    elif draw < 0.9:
        made = _is_a(net, synset, rng)
    return made or _defines(net, synset, rng)


def _choice(question: str, texts: list[str], state: str, rng: random.Random) -> Example:
    """A choice whose first text is the right one."""
    unique = list(dict.fromkeys(texts))
    right = unique[0]
    rng.shuffle(unique)
    return Example(
        kind="choice",
        instructions=question,
        options=tuple(choice_option(text) for text in unique),
        answer=unique.index(right),
        state=state,
        anchors=tuple(meaning(text) for text in unique),
        core=state,
        source="wordnet",
    )


def _noul(question: str, holds: bool, state: str, rng: random.Random) -> Example:
    return Example(
        kind="noul",
        instructions=question,
        options=noul_options(),
        answer=int(holds),
        state=state,
        anchors=("no", question),
        core=state,
        order=(1, 0) if rng.random() < 0.15 else (),
        source="wordnet",
    )


def _definition_to_word(net: WordNet, synset: Synset, rng: random.Random) -> Example | None:
    others = rng.sample(net.by_part[synset.part], rng.choice((2, 3, 4, 6)))
    texts = [rng.choice(synset.words)]
    texts += [
        rng.choice(net.synsets[key].words)
        for key in others
        if not set(net.synsets[key].words) & set(synset.words)
    ]
    if len(texts) < 2:
        return None
    state = dress(synset.definition, rng, social=False)
    return _choice(rng.choice(WORD_QUESTIONS), texts, state, rng)


def _described(synset: Synset, rng: random.Random) -> str:
    word = synset.words[0]
    forms = (word, f"{word}: {synset.definition}", synset.definition, *synset.examples)
    return rng.choice(forms)


def _word_to_kind(net: WordNet, synset: Synset, rng: random.Random) -> Example | None:
    if not synset.kinds:
        return None
    kind = rng.choice(synset.kinds[:4])
    style = random_style(rng)
    count = rng.choice((3, 4, 5, 6))
    texts = [style(net.synsets[kind].words[0])]
    for key in rng.sample(net.kinds, 12):
        other = net.synsets[key]
        unrelated = key not in synset.kinds and kind not in other.kinds
        if unrelated and len(texts) < count:
            texts.append(style(other.words[0]))
    if len(texts) < 2:
        return None
    return _choice(rng.choice(KIND_QUESTIONS), texts, _described(synset, rng), rng)


def _subject(synset: Synset, rng: random.Random) -> Example | None:
    if synset.subject not in SUBJECTS:
        return None
    verbal = subject_is_verbal(synset.subject)
    texts = [SUBJECTS[synset.subject]]
    for code in rng.sample(sorted(SUBJECTS), 8):
        if code != synset.subject and subject_is_verbal(code) == verbal and len(texts) < 5:
            texts.append(SUBJECTS[code])
    if len(texts) < 2:
        return None
    return _choice(rng.choice(SUBJECT_QUESTIONS), texts, _described(synset, rng), rng)


def _sense_in_context(net: WordNet, synset: Synset, rng: random.Random) -> Example | None:
    used = [
        word
        for word in synset.words
        if any(re.search(rf"\b{re.escape(word[:-1])}", text) for text in synset.examples)
    ]
    if not used:
        return None
    word = used[0]
    siblings = [
        key for key in net.by_word.get(word, []) if key != synset.key and key[0] == synset.part
    ]
    texts = [synset.definition]
    texts += [net.synsets[key].definition for key in rng.sample(siblings, min(len(siblings), 2))]
    while len(set(texts)) < 3:
        texts.append(net.synsets[rng.choice(net.by_part[synset.part])].definition)
    question = f'What does "{word}" mean here?'
    return _choice(question, texts, rng.choice(synset.examples), rng)


def _is_a(net: WordNet, synset: Synset, rng: random.Random) -> Example | None:
    if not synset.kinds:
        return None
    holds = rng.random() < 0.5
    if holds:
        kind = rng.choice(synset.kinds[:4])
    else:
        others = [key for key in rng.sample(net.kinds, 5) if key not in synset.kinds]
        if not others:
            return None
        kind = others[0]
    question = rng.choice(IS_A_QUESTIONS).format(x=net.synsets[kind].words[0])
    word = synset.words[0]
    state = rng.choice((f"{word}: {synset.definition}", synset.definition, word))
    return _noul(question, holds, state, rng)


def _defines(net: WordNet, synset: Synset, rng: random.Random) -> Example:
    holds = rng.random() < 0.5
    shown = synset if holds else net.synsets[rng.choice(net.by_part[synset.part])]
    holds = holds or bool(set(shown.words) & set(synset.words))
    question = rng.choice(DEFINES_QUESTIONS).format(x=rng.choice(synset.words))
    return _noul(question, holds, shown.definition, rng)
