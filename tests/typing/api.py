"""The public API as a user writes it. Never run: mypy reads it."""

from typing import assert_type

import drut
from drut.schema import Prediction

agent = drut.load("starter", device="cpu", threads=1)
assert_type(agent, drut.Agent)

QUESTIONS = {
    "team": {"type": "choice", "instructions": "Which team?", "criteria": ["billing", "tech"]},
    "urgent": {"type": "noul", "instructions": "Is it urgent?"},
}

result = agent.predict("It crashes", QUESTIONS)
assert_type(result, Prediction)
assert_type(result["usage"]["input_tokens"], int)
assert_type(agent.predict_batch(["a", {"b": 1}], QUESTIONS, batch_size=8), list[Prediction])
answer = result["answers"]["urgent"]
if answer["type"] == "noul":
    assert_type(answer["noul"], float)


class Audit(drut.BaseHook):
    """A hook as a user writes it."""

    def on_predict_end(self, ctx: drut.PredictContext) -> None:
        assert_type(ctx.elapsed_ms, float | None)


with agent.add_hook(Audit()).hooks_installed(Audit()) as same:
    assert_type(same, drut.Agent)

try:
    agent.predict("x", {"q": {"type": "score", "instructions": "?"}})
except drut.errors.InvalidRequestError as error:
    assert_type(str(error), str)


async def coroutines() -> None:
    """The same for coroutines."""
    caller = await drut.AsyncAgent.load("starter", device="cpu", threads=1, max_calls=8)
    assert_type(caller, drut.AsyncAgent)
    async with caller as entered:
        assert_type(entered, drut.AsyncAgent)
        assert_type(await entered.predict("It crashes", QUESTIONS, lang="en"), Prediction)
        assert_type(await entered.predict_batch(["a"], QUESTIONS, batch_size=8), list[Prediction])
        assert_type(await entered.warmup(), float)
        async for each in entered.predict_stream(["a", "b"], QUESTIONS, window=1):
            assert_type(each, Prediction)
        await entered.predict("It crashes", QUESTIONS, langg="en")  # type: ignore[call-arg]
        await entered.predict("It crashes")  # type: ignore[call-arg]
    with caller.add_hook(Audit()).hooks_installed(Audit()) as same:
        assert_type(same, drut.AsyncAgent)
    queue = caller.sync.queue
    assert_type(None if queue is None else queue.stats().rows_per_pass, float | None)

    router = drut.AsyncRouter(drut.Router())
    assert_type(await router.preload(["english"]), drut.AsyncRouter)
    assert_type(await router.route("Hello"), drut.RouteDecision)
    assert_type(await router.predict("Hello", QUESTIONS, model="english"), Prediction)
    await router.pin(5)  # type: ignore[arg-type]
