"""Redaction: addresses and numbers never reach the model, nor any hook behind this one."""

import re
from collections.abc import Iterator
from typing import Any

import drut

PATTERNS = {
    "[email]": re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"),
    "[iban]": re.compile(r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b"),
    "[number]": re.compile(r"\+?\d(?:[ /.()-]{0,2}\d){6,}"),  # telephones, cards, accounts
}


class Redact(drut.BaseHook):
    """Replaces what looks personal in every text of the states. Install it first."""

    def on_predict_start(self, ctx: drut.PredictContext) -> None:
        states = list(ctx.states) if isinstance(ctx.states, Iterator) else ctx.states
        ctx.states = redacted(states)  # a new object: the caller's own stays as it is


def redacted(value: Any) -> Any:
    """A copy of JSON data with every text redacted; keys of objects, too."""
    if isinstance(value, str):
        for placeholder, pattern in PATTERNS.items():
            value = pattern.sub(placeholder, value)
        return value
    if isinstance(value, dict):
        return {redacted(key): redacted(each) for key, each in value.items()}
    if isinstance(value, list):
        return [redacted(each) for each in value]
    return tuple(map(redacted, value)) if isinstance(value, tuple) else value


if __name__ == "__main__":
    agent = drut.load("starter", hooks=Redact())
    question = {"urgent": {"type": "noul", "instructions": "Does the customer need help today?"}}
    message = "Please call me back today: +49 170 1234567 or ada@example.org"
    print(agent.predict(message, question, on_predict_end=lambda ctx: print(ctx.states[0])))
