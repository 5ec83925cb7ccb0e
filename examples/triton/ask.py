"""Ask a decision model of a Triton server; needs only `pip install tritonclient[grpc]`.

python examples/triton/ask.py localhost:8001 starter_decision
"""

import json
import sys

import numpy as np
import tritonclient.grpc as triton

QUESTIONS = {
    "team": {
        "type": "choice",
        "instructions": "Which team should handle this?",
        "criteria": {"billing": "charges, invoices, refunds", "support": "errors, outages"},
    },
    "urgent": {"type": "noul", "instructions": "Is the customer in a hurry?"},
}


class Decisions:
    """One channel to the server, for any number of threads."""

    def __init__(self, server: str, model: str) -> None:
        self.client = triton.InferenceServerClient(server)
        self.model = model

    def ask(self, state: object, questions: dict, seconds: float = 5.0, **options: object) -> dict:
        """Answers about one state. Errors are `tritonclient.utils.InferenceServerException`."""
        texts = {
            "STATE": state if isinstance(state, str) else json.dumps(state),
            "QUESTIONS": json.dumps(questions),
            "OPTIONS": json.dumps(options),  # lang, max_len, head_max_len, min_confidence
        }
        found = self.client.infer(
            self.model,
            [self.tensor(name, text) for name, text in texts.items()],
            timeout=int(seconds * 1e6),  # the server drops the request after that
            client_timeout=seconds,
        )
        return json.loads(found.as_numpy("ANSWERS").item())

    @staticmethod
    def tensor(name: str, text: str) -> triton.InferInput:
        made = triton.InferInput(name, [1, 1], "BYTES")
        made.set_data_from_numpy(np.array([[text.encode()]], np.object_))
        return made


if __name__ == "__main__":
    decisions = Decisions(*(sys.argv[1:] or ["localhost:8001", "starter_decision"]))
    for line in ("I was charged twice, refund me today!", "The app shows an error"):
        answers = decisions.ask(line, QUESTIONS, min_confidence=0.6)["answers"]
        print(line, "->", answers["team"]["choice"], answers["urgent"]["noul"])
    decisions.client.close()
