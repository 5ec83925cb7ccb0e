"""Dressing a plain text the way messages arrive: case, typos, small talk, JSON, chat turns."""

import json
import random
from typing import Final

from starter import phrases
from starter.grammar import expand

SHORT: Final = 12  # characters; shorter texts get no small talk
TYPO_SHARE: Final = 0.08
WRAP_SHARE: Final = 0.14


def dress(text: str, rng: random.Random, *, social: bool = True) -> str:
    """Vary one text; `social` allows added sentences and wrapping, which say nothing new."""
    if social and len(text) > SHORT:
        text = _small_talk(text, rng)
    text = _case(text, rng)
    if rng.random() < TYPO_SHARE:
        text = _typo(text, rng)
    if social and rng.random() < WRAP_SHARE:
        text = _wrap(text, rng)
    return text


def is_about_wording(text: str) -> bool:
    """Whether a question or domain asks about the wording, so that texts must stay as they are."""
    lowered = text.lower()
    return any(word in lowered for word in phrases.WORDING_QUESTIONS)


def _closed(text: str) -> str:
    return text if text[-1:] in ".!?:" else text + "."


def _small_talk(text: str, rng: random.Random) -> str:
    draw = rng.random()
    if "\n" not in text:
        if draw < 0.13:
            text = _with_fillers(text, rng, 1)
        elif draw < 0.24:
            text = _with_fillers(text, rng, rng.randint(2, 5))
        if rng.random() < 0.15:
            text = expand(rng.choice(phrases.OPENINGS), rng) + text
    if rng.random() < 0.15:
        text = _closed(text.rstrip()) + expand(rng.choice(phrases.CLOSINGS), rng)
    return text


def _with_fillers(text: str, rng: random.Random, count: int) -> str:
    sentences = [expand(line, rng) for line in rng.sample(phrases.FILLERS, count)]
    opening = text[:1].upper() + text[1:] if rng.random() < 0.6 else text
    sentences.insert(rng.randint(0, count), _closed(opening))
    joint = "\n" if count > 2 and rng.random() < 0.2 else " "
    return joint.join(sentences)


def _case(text: str, rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.12:
        return text.lower()
    if draw < 0.17:
        return text.rstrip(".!?")
    if draw < 0.20:
        return text.upper() if len(text) < 80 else text
    if draw < 0.32:
        return _closed(text[:1].upper() + text[1:])
    return text


def _typo(text: str, rng: random.Random) -> str:
    letters = list(text)
    for _ in range(rng.randint(1, 2)):
        place = rng.randrange(max(1, len(letters) - 1))
        pair = letters[place : place + 2]
        if len(pair) == 2 and pair[0].isalpha() and pair[1].isalpha():
            if rng.random() < 0.5:
                letters[place : place + 2] = [pair[1], pair[0]]
            else:
                letters.pop(place)
    return "".join(letters)


def _wrap(text: str, rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.6:
        return _as_json(text, rng)
    if draw < 0.75:
        return f"channel: {rng.choice(phrases.CHANNELS)}\nmessage: {text}"
    if draw < 0.9:
        return f"{expand(rng.choice(phrases.SPEAKERS), rng)}: {text}"
    return "> " + text


def _as_json(text: str, rng: random.Random) -> str:
    key = rng.choice(phrases.TEXT_KEYS)
    forms: tuple[object, ...] = (
        {key: text},
        {"subject": rng.choice(phrases.SUBJECTS), "body": text},
        {"id": rng.randint(1000, 99999), key: text},
        {"channel": rng.choice(phrases.CHANNELS), key: text},
        {"from": expand("{name}", rng), "subject": rng.choice(phrases.SUBJECTS), "body": text},
        {"role": "user", "content": text},
        [{"role": "user", "content": text}],
        [
            {"role": "assistant", "content": rng.choice(("How can I help?", "Hello!"))},
            {"role": "user", "content": text},
        ],
        {"customer": expand("{name}", rng), key: text, "city": expand("{city}", rng)},
        [text],
        {"ticket": {"id": rng.randint(1, 9999), key: text}},
    )
    return json.dumps(rng.choice(forms), ensure_ascii=False)
