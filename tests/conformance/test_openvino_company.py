"""On OpenVINO a state is answered the same in any company, in every precision it runs.

In bfloat16 to the last bit, because only rows of one length share a pass; in float32, where rows
are padded, up to the rounding of sums.
"""

import random
from collections.abc import Iterator

import numpy as np
import pytest

import drut
from exports import export_once, shared_directory
from golden_values import GOLDEN

WORDS = ["refund", "invoice", "late", "crash", "login", "parcel", "please", "today", "app", "order"]
QUESTIONS = {
    "team": {"type": "choice", "instructions": "Who?", "criteria": ["billing", "support", "sales"]},
    "late": {"type": "noul", "instructions": "Is it late?"},
    "urgency": {
        "type": "score",
        "instructions": "How urgent?",
        "criteria": ["no", "a bit", "yes", "now"],
    },
}


@pytest.fixture(scope="module", params=["fp32", "bf16"])
def agent(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[drut.Agent]:
    cache = shared_directory(tmp_path_factory)
    bundle = export_once(GOLDEN / "tiny-checkpoint", cache, request.param)
    with drut.load(bundle.directory.parent, runtime="openvino", threads=1) as made:
        assert made.runtime.info.name == "openvino"
        yield made


@pytest.mark.filterwarnings("ignore:.*temperature.*:RuntimeWarning")
@pytest.mark.parametrize("seed", range(6))
def test_alone_and_in_a_batch_the_answers_are_equal(agent: drut.Agent, seed: int) -> None:
    chance = random.Random(seed)
    # Few lengths, so that many rows are of the same one, with two, three and four options.
    states = [" ".join(chance.choices(WORDS, k=chance.choice([3, 4, 4, 9, 30]))) for _ in range(12)]
    together = agent.predict_batch(states, QUESTIONS)
    alone = [agent.predict(state, QUESTIONS) for state in states]
    for first, second in zip(together, alone, strict=True):
        if agent.runtime.info.precision == "bf16":
            assert first["answers"] == second["answers"]
        for name in QUESTIONS:
            share, other = (each["answers"][name]["answer_confidence"] for each in (first, second))
            assert share == pytest.approx(other, abs=2e-4)


def test_logits_too(agent: drut.Agent) -> None:
    states = ["late order", "late invoice", "crash today", "a much longer text about a parcel"]
    together = agent.logits(states, QUESTIONS)
    for index, state in enumerate(states):
        for name, alone in agent.logits([state], QUESTIONS).items():
            far = np.abs(together[name][index] - alone[0]).max()
            assert far <= (0.0 if agent.runtime.info.precision == "bf16" else 5e-5)
