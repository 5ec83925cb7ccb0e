"""What is asked: texts of the starter's evaluation files, cut and joined from fixed seeds."""

import json
import random
from pathlib import Path
from typing import Any

EVAL = Path(__file__).resolve().parents[1] / "starter" / "eval"
Questions = dict[str, dict[str, Any]]

SHORT = (
    "Hi, I was charged twice for my March invoice. Please refund the second payment today, "
    "otherwise I will cancel my plan."
)
TEAM: Questions = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": ["billing", "technical support", "sales", "account"],
    }
}
KINDS: tuple[dict[str, Any], ...] = (
    TEAM["team"],
    {"type": "noul", "instructions": "Is the customer in a hurry?"},
    {
        "type": "score",
        "instructions": "How bad is it?",
        "criteria": ["minor", "annoying", "blocking"],
    },
    {
        "type": "choice",
        "instructions": "What does the customer want?",
        "criteria": ["refund", "repair", "information", "cancellation"],
    },
)


def raw_cases() -> list[dict[str, Any]]:
    """The hand-written evaluation cases as they are stored."""
    lines = (EVAL / "test_cases.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def state_texts() -> list[str]:
    """The cases' states, as text."""
    return [
        state if isinstance(state, str) else json.dumps(state, ensure_ascii=False)
        for state in (case["state"] for case in raw_cases())
    ]


def evaluation() -> list[tuple[Any, Questions]]:
    """Every evaluation case as a state and its one question."""
    found = []
    for case in raw_cases():
        question = {"type": case["type"], "instructions": case["instructions"]}
        if case["type"] != "noul":
            question["criteria"] = case["options"]
        found.append((case["state"], {"q": question}))
    return found


def text_of_words(words: int, seed: int) -> str:
    """So many words in a row of the evaluation texts, from a random place."""
    every = " ".join(state_texts()).split()
    start = random.Random(seed).randrange(len(every))
    return " ".join(every[(start + index) % len(every)] for index in range(words))


def mixed_states(count: int, seed: int = 3) -> list[str]:
    """Texts of log-normal length: half of them below 35 words, one in twenty above 140."""
    dice = random.Random(seed)
    every = " ".join(state_texts()).split()
    states = []
    for _ in range(count):
        words = min(300, max(4, int(dice.lognormvariate(3.55, 0.85))))
        start = dice.randrange(len(every))
        states.append(" ".join(every[(start + index) % len(every)] for index in range(words)))
    return states


def real_states(count: int) -> list[str]:
    """The evaluation texts as they are, in turn; later rounds are told apart by a number."""
    texts = state_texts()
    rounds = (divmod(index, len(texts)) for index in range(count))
    return [f"{number} {texts[place]}" if number else texts[place] for number, place in rounds]


def questions(count: int) -> Questions:
    """So many different questions of all types."""
    made: Questions = {}
    for index in range(count):
        kind = KINDS[index % len(KINDS)]
        wording = f"{kind['instructions']} Point {index + 1}."
        made[f"q{index}"] = {**kind, "instructions": wording}
    return made


def many_options(count: int) -> Questions:
    """One choice with so many one-word options."""
    words = sorted({word.lower() for word in " ".join(state_texts()).split() if word.isalpha()})
    picked = random.Random(5).sample(words, count)
    return {"label": {"type": "choice", "instructions": "What is it?", "criteria": picked}}
