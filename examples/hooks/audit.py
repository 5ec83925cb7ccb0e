"""Audit: one JSON line per request, whatever became of it, and no text of the request in it."""

import json
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

import drut


class Audit(drut.BaseHook):
    """Writes a record when a request ends. For a slow sink, put records into a queue instead."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def on_predict_end(self, ctx: drut.PredictContext) -> None:
        record = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "run_id": ctx.run_id,
            "model": ctx.model,
            "questions": list(ctx.questions) if isinstance(ctx.questions, Mapping) else None,
            "results": None if ctx.results is None else len(ctx.results),
            "elapsed_ms": round(ctx.elapsed_ms or 0.0, 3),
            "usage": ctx.usage,
            "error": None if ctx.error is None else type(ctx.error).__name__,
        }
        line = json.dumps(record, default=repr)
        with self._lock:
            self._stream.write(f"{line}\n")
            self._stream.flush()


if __name__ == "__main__":
    agent = drut.load("starter", hooks=Audit(sys.stdout))
    question = {"urgent": {"type": "noul", "instructions": "Does the customer need help today?"}}
    agent.predict_batch(["I cannot log in!", "Thanks, all is well."], question)
