"""Hooks, spies and agents for the lifecycle tests."""

import asyncio
import atexit
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cache, wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drut
from drut.aio import INSIDE_CALL, AsyncAgent
from drut.hooks.invoke import raise_unchanged
from drut.runtimes.base import Runtime, RuntimeInfo
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.tensors import MASKED_LOGIT, Batch, Logits
from exports import export_once
from golden_values import GOLDEN
from tiny_checkpoint import checkpoint

NOUL = {"n": {"type": "noul", "instructions": "Is it urgent?"}}

EXPORTS: list[Path] = []  # where exports of this test run are kept; set by conftest.py

Action = Callable[[drut.PredictContext], Any]


def nothing(ctx: drut.PredictContext) -> None:
    """Do nothing."""


class Hook:
    """Notes all six events as `name.event` in a shared log, then does what it was told to."""

    def __init__(
        self,
        log: list[str],
        name: str = "A",
        *,
        start: Action = nothing,
        error: Action = nothing,
        end: Action = nothing,
    ) -> None:
        self.contexts: list[drut.PredictContext] = []  # of every event, in order
        self._log = log
        self._name = name
        self._actions = {"start": start, "error": error, "end": end}

    def _note(self, event: str, ctx: drut.PredictContext) -> Any:
        self._log.append(f"{self._name}.{event}")
        self.contexts.append(ctx)
        return self._actions.get(event, nothing)(ctx)

    def on_predict_start(self, ctx: drut.PredictContext) -> Any:
        return self._note("start", ctx)

    def on_predict_end(self, ctx: drut.PredictContext) -> Any:
        return self._note("end", ctx)

    def on_error(self, ctx: drut.PredictContext) -> Any:
        return self._note("error", ctx)

    def on_route(self, ctx: drut.PredictContext) -> Any:
        return self._note("route", ctx)

    def on_load(self, ctx: drut.PredictContext) -> Any:
        return self._note("load", ctx)

    def on_evict(self, ctx: drut.PredictContext) -> Any:
        return self._note("evict", ctx)


class AsyncHook(Hook):
    """A hook whose predict events are coroutines. Actions may be, too."""

    async def on_predict_start(self, ctx: drut.PredictContext) -> None:
        await self._later("start", ctx)

    async def on_predict_end(self, ctx: drut.PredictContext) -> None:
        await self._later("end", ctx)

    async def on_error(self, ctx: drut.PredictContext) -> None:
        await self._later("error", ctx)

    async def _later(self, event: str, ctx: drut.PredictContext) -> None:
        await asyncio.sleep(0)
        outcome = self._note(event, ctx)
        if inspect.isawaitable(outcome):
            await outcome


@dataclass(frozen=True)
class Mode:
    """One way in which hooks run. `hook` makes them, `run` makes the call."""

    hook: type[Hook] = Hook
    limit: float | None = None  # seconds per hook
    inside_loop: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """Options of the agent."""
        return {"hooks_timeout": self.limit}

    def run(self, work: Callable[[], Any]) -> Any:
        """Call `work` directly, or from a coroutine."""
        if not self.inside_loop:
            return work()

        async def inside() -> Any:
            return work()

        return asyncio.run(inside())


MODES = {
    "plain": Mode(),
    "timed": Mode(limit=20.0),
    "async": Mode(AsyncHook),
    "async timed": Mode(AsyncHook, limit=20.0),
    "async in a loop": Mode(AsyncHook, inside_loop=True),
    "async timed in a loop": Mode(AsyncHook, limit=20.0, inside_loop=True),
}
every_mode = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)


def raising(exc: BaseException) -> Action:
    """An action that raises."""

    def action(ctx: drut.PredictContext) -> None:
        raise exc

    return action


def skipping(results: Any) -> Action:
    """An action that answers the call."""
    return lambda ctx: ctx.skip(results)


def setting(**values: Any) -> Action:
    """An action that writes fields of the context."""

    def action(ctx: drut.PredictContext) -> None:
        for name, value in values.items():
            setattr(ctx, name, value)

    return action


def noting(into: list[Any], *fields: str) -> Action:
    """An action that notes what fields of the context are at that moment."""
    return lambda ctx: into.append(tuple(getattr(ctx, field) for field in fields))


class LoggedTokenizer:
    """A tokenizer that notes `tokenise`, once for calls in a row."""

    def __init__(self, tokenizer: Any, log: list[str]) -> None:
        self._tokenizer = tokenizer
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        if self._log[-1:] != ["tokenise"]:
            self._log.append("tokenise")
        return self._tokenizer.encode_all(texts)


class LoggedRuntime:
    """A runtime that notes `forward ROWS`, then calls `before`, then runs the pass."""

    def __init__(self, runtime: Runtime, log: list[str], before: Callable[[Batch], object]) -> None:
        self.runtime = runtime
        self._log = log
        self._before = before

    @property
    def info(self) -> RuntimeInfo:
        return self.runtime.info

    def forward(self, batch: Batch) -> Logits:
        self._log.append(f"forward {len(batch)}")
        self._before(batch)
        return self.runtime.forward(batch)

    def close(self) -> None:
        """Leave the runtime open: other tests share it."""


def by_content(batch: Batch) -> Logits:
    """Logits that differ between states and do not depend on padding."""
    total = (batch.input_ids * batch.attention_mask).sum(axis=1, keepdims=True)
    phase = (total % 7).astype(np.float32)
    options = np.sin(batch.marker_pos.astype(np.float32) + phase)
    return Logits(
        np.where(batch.marker_mask, options, np.float32(MASKED_LOGIT)),
        np.concatenate((np.cos(phase), np.sin(phase)), axis=1),
    )


def make_fake_agent(
    log: list[str] | None = None,
    before: Callable[[Batch], object] = lambda batch: None,
    agent_class: type[drut.Agent] = drut.Agent,
    **options: Any,
) -> drut.Agent:
    """An agent of the tiny checkpoint whose logits come from a function.

    Args:
        log: where tokenising and forward passes are noted.
        before: called with every batch before its pass.
        agent_class: the class to make.
        **options: of the agent.
    """
    return _agent(tiny(), drut.FakeRuntime(by_content), log, before, agent_class, options)


def make_onnx_agent(
    log: list[str] | None = None,
    before: Callable[[Batch], object] = lambda batch: None,
    agent_class: type[drut.Agent] = drut.Agent,
    **options: Any,
) -> drut.Agent:
    """The same on ONNX Runtime, with a real graph."""
    return _agent(*onnx_checkpoint(), log, before, agent_class, options)


class ThroughAsync(drut.Agent):
    """An agent whose outermost calls are made by a coroutine, through `AsyncAgent`."""

    @wraps(drut.Agent.predict_batch)
    def predict_batch(self, *args: Any, **options: Any) -> Any:
        return self._through("predict_batch", super().predict_batch, args, options)

    @wraps(drut.Agent.system_one)
    def system_one(self, *args: Any, **options: Any) -> Any:
        return self._through("system_one", super().system_one, args, options)

    predict = system_one

    @wraps(drut.Agent.predict_long)
    def predict_long(self, *args: Any, **options: Any) -> Any:
        return self._through("predict_long", super().predict_long, args, options)

    def _through(self, name: str, direct: Callable[..., Any], args: Any, options: Any) -> Any:
        if INSIDE_CALL.get():
            return direct(*args, **options)

        async def call() -> Any:
            return await getattr(AsyncAgent(self), name)(*args, **options)

        context = copy_context()
        [outcome] = together(1, lambda index: context.run(asyncio.run, call()))
        if isinstance(outcome, RuntimeError) and isinstance(outcome.__cause__, StopIteration):
            outcome = outcome.__cause__  # no coroutine can raise it
        if isinstance(outcome, BaseException):
            raise_unchanged(outcome)
        return outcome


def make_async_agent(*args: Any, **options: Any) -> drut.Agent:
    """A fake agent, called by coroutines."""
    return make_fake_agent(*args, **{"agent_class": ThroughAsync, **options})


def make_triton_agent(
    log: list[str] | None = None,
    before: Callable[[Batch], object] = lambda batch: None,
    agent_class: type[drut.Agent] = drut.Agent,
    **options: Any,
) -> drut.Agent:
    """The same with the function on a server of the v2 protocol, over HTTP."""
    return _agent(tiny(), triton_runtime(), log, before, agent_class, options)


def make_openvino_agent(
    log: list[str] | None = None,
    before: Callable[[Batch], object] = lambda batch: None,
    agent_class: type[drut.Agent] = drut.Agent,
    **options: Any,
) -> drut.Agent:
    """The same on OpenVINO."""
    return _agent(tiny(), openvino_runtime(), log, before, agent_class, options)


BOTH_AGENTS = [
    pytest.param(make_fake_agent, id="fake"),
    pytest.param(make_onnx_agent, id="onnxruntime"),
    pytest.param(make_openvino_agent, id="openvino"),
    pytest.param(make_triton_agent, id="triton"),
]
both_agents = pytest.mark.parametrize("make_agent", BOTH_AGENTS)
every_agent = pytest.mark.parametrize(
    "make_agent", [*BOTH_AGENTS, pytest.param(make_async_agent, id="coroutine")]
)
"""The same, and an agent that coroutines call."""


@cache
def onnx_checkpoint() -> tuple[drut.Checkpoint, Runtime]:
    """The tiny checkpoint and a session with its exported graph, shared by all tests."""
    bundle = export_once(GOLDEN / "tiny-checkpoint", EXPORTS[-1])
    return tiny(), OrtRuntime(bundle.graph, OrtOptions(device="cpu", threads=1))


@cache
def openvino_runtime() -> Runtime:
    """The same graph on OpenVINO, shared by all tests."""
    from drut.runtimes.openvino import OpenVinoOptions, OpenVinoRuntime

    bundle = export_once(GOLDEN / "tiny-checkpoint", EXPORTS[-1])
    return OpenVinoRuntime(bundle.graph, OpenVinoOptions("cpu", threads=1))


@cache
def triton_runtime() -> Runtime:
    """A runtime on a server that lives as long as this process, shared by all tests."""
    from drut.runtimes.triton import TritonRuntime
    from drut.runtimes.triton_options import TritonOptions
    from fake_v2_server import fake_v2_server

    resources = ExitStack()
    atexit.register(resources.close)
    server = resources.enter_context(fake_v2_server())
    server.answer = by_content
    runtime = TritonRuntime(TritonOptions(server.http, model="tiny"), tiny())
    resources.callback(runtime.close)
    return runtime


def together(count: int, work: Callable[[int], Any], timeout: float = 30.0) -> list[Any]:
    """Run `work(i)` in as many threads, released at once; results or exceptions in order."""
    gate = threading.Barrier(count)
    outcomes: list[Any] = [AssertionError("the thread did not end")] * count

    def run(index: int) -> None:
        gate.wait()
        try:
            outcomes[index] = work(index)
        except BaseException as exc:
            outcomes[index] = exc

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    return outcomes


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for another thread to get somewhere."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


def yes(results: Sequence[Any]) -> list[float]:
    """Answers to the one yes/no question of `NOUL`."""
    return [result["answers"]["n"]["noul"] for result in results]


def cached(noul: float = 0.25, **usage: int) -> dict[str, Any]:
    """A result as a cache would hold it."""
    answer = {"type": "noul", "noul": noul, "confidence": 0.75, "answer_confidence": 0.75}
    return {"model": "cached", "answers": {"n": answer}, "usage": usage}


def context_chain(exc: BaseException | None) -> list[BaseException]:
    """The exception and its contexts; fails where they form a circle."""
    chain: list[BaseException] = []
    while exc is not None:
        assert all(exc is not each for each in chain), f"a circle of contexts: {chain}"
        chain.append(exc)
        exc = exc.__context__
    return chain


def tiny() -> drut.Checkpoint:
    """The tiny checkpoint. Its temperatures out of range, which warn, are clamped beforehand."""
    sound = {"noul:2": 1.1, "choice:2": 1.7, "choice:3-5": 0.8, "choice:11+": 0.5, "score:3-5": 5.0}
    return checkpoint(temperature_by_options=sound)


def _agent(
    checkpoint: drut.Checkpoint,
    runtime: Runtime,
    log: list[str] | None,
    before: Callable[[Batch], object],
    agent_class: type[drut.Agent],
    options: dict[str, Any],
) -> drut.Agent:
    log = [] if log is None else log
    spied: Any = LoggedTokenizer(checkpoint.tokenizer, log)
    return agent_class(
        replace(checkpoint, tokenizer=spied),
        runtime=LoggedRuntime(runtime, log, before),
        **options,
    )
