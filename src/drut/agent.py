"""Agent: one checkpoint answers typed questions, with the whole hook lifecycle around it."""

import warnings
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from drut.checkpoint.opened import Checkpoint
from drut.decoding.calibration import Calibration
from drut.decoding.gate import Gate, parse_min_confidence
from drut.encoding.windows import WindowPlan, default_window, merge_windows, plan_windows
from drut.errors import InvalidRequestError, InvalidTypeError
from drut.execution.queue import QueueRunner
from drut.hooks.context import PredictContext
from drut.hooks.registry import HookOptions, HookOwner, hook_options
from drut.pipeline import InferenceOptions, Pipeline, whole_number
from drut.questions import as_mapping, shorten
from drut.runtimes.base import Runtime
from drut.schema import MinConfidence, OnTruncation, Prediction, QuestionId, Questions, State
from drut.streaming import AnswersStreams
from drut.tensors import Float32
from drut.usage import total_usage

# The public methods take upstream's arguments by upstream's names, more than the usual limit.
# ruff: noqa: PLR0913, PLR0917


class DecisionAgent(HookOwner, AnswersStreams):
    """Answers typed questions about states with one checkpoint and one runtime.

    Safe to call from many threads. `drut.Agent` is this class, opened by name or path.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        pipeline: Pipeline,
        hooks: HookOptions,
        *,
        concurrent: bool,
        queue: QueueRunner | None = None,
    ) -> None:
        super().__init__(hooks, concurrent=concurrent)
        self.checkpoint = checkpoint
        self._pipeline = pipeline
        self._queue = queue

    @property
    def model_id(self) -> str:
        """The name or path the checkpoint was asked for by."""
        return self.checkpoint.model_id

    @property
    def revision(self) -> str | None:
        """Commit of the checkpoint on the hub, where it came from there."""
        return self.checkpoint.revision

    @property
    def runtime(self) -> Runtime:
        """What runs the graph; `agent.runtime.info` says where."""
        return self._pipeline.runtime

    @property
    def queue(self) -> QueueRunner | None:
        """What lets concurrent calls share passes; `agent.queue.stats()` counts. None without."""
        return self._queue

    @property
    def device(self) -> str:
        """The device that really runs: `cpu`, `cuda:0`, ..."""
        return self.runtime.info.device

    @property
    def requested_device(self) -> str:
        """The device that was asked for."""
        return self.runtime.info.requested_device

    @property
    def calibration(self) -> Calibration:
        """Temperatures, clamped, and confidence bins."""
        return self._pipeline.calibration

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model_id={self.model_id!r}, device={self.device!r})"

    def describe(self) -> dict[str, Any]:
        """What this agent runs, as plain data: checkpoint, graph, device, budgets."""
        bundle, config, info = self.checkpoint.bundle, self.checkpoint.config, self.runtime.info
        return {
            "model_id": self.model_id,
            "revision": self.revision,
            "directory": str(self.checkpoint.directory),
            "version": bundle.version if bundle else None,
            "file": bundle.graph.name if bundle else None,
            "precision": info.precision,
            "runtime": info.name,
            "device": info.device,
            "requested_device": info.requested_device,
            "max_len": config.max_len,
            "head_max_len": config.head_max_len,
            "option_layout": config.option_layout,
        }

    def statistics(self) -> dict[str, Any]:
        """What was computed so far, as plain numbers: rows, passes, tokens, padding, the queue.

        `padding` is the share of computed tokens that was not real. `repeated_rows` were equal to
        another row of their call and cost nothing.
        """
        return self._pipeline.runner.statistics()

    def predict_batch(
        self,
        states: Sequence[State],
        questions: Questions,
        batch_size: int | None = None,
        lang: str | None = None,
        *,
        hooks: Any = None,
        on_predict_start: Any = None,
        on_predict_end: Any = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
        sort_by_length: bool = False,
        min_confidence: MinConfidence | None = None,
        on_truncation: OnTruncation = "ignore",
    ) -> list[Prediction]:
        """Answer the same questions about every state.

        Args:
            states: the states, each text or JSON, none of them None.
            questions: question id to definition (`type`, `instructions`, `criteria`, ...).
            batch_size: states encoded together; None leaves it to the token budget.
            lang: language code; picks temperatures of that language where there are any.
            hooks: hooks of this call, run behind the installed ones.
            on_predict_start: function or functions run as start hooks, behind `hooks`.
            on_predict_end: the same for end hooks.
            hooks_raise: whether a hook's error stops the call; None: as installed.
            hooks_timeout: seconds per hook; None: as installed.
            max_len: tokens of a sequence, instead of the checkpoint's.
            head_max_len: tokens of instructions and options in it.
            sort_by_length: put states of similar length into the same batch.
            min_confidence: mark answers below this confidence as abstained.
            on_truncation: what to do if the budget cuts anything: ignore, warn or error. What was
                cut is in `usage` in any case.

        Returns:
            One result per state, in input order, as the end hooks left them.

        Raises:
            InvalidRequestError: something cannot be answered as written; the end hooks have run.
            ForwardError: the runtime failed.
        """
        call = hook_options(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        options = InferenceOptions(
            batch_size, lang, max_len, head_max_len, sort_by_length, on_truncation
        )
        gate = parse_min_confidence(min_confidence)
        return self._call(self._context(states, questions, options), call, options, gate)

    def system_one(
        self,
        state: State,
        questions: Questions,
        lang: str | None = None,
        *,
        hooks: Any = None,
        on_predict_start: Any = None,
        on_predict_end: Any = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
        max_len: int | None = None,
        head_max_len: int | None = None,
        min_confidence: MinConfidence | None = None,
        on_truncation: OnTruncation = "ignore",
    ) -> Prediction:
        """Answer questions about one state: `predict_batch([state], questions, ...)[0]`."""
        return self.predict_batch(
            [state],
            questions,
            lang=lang,
            hooks=hooks,
            on_predict_start=on_predict_start,
            on_predict_end=on_predict_end,
            hooks_raise=hooks_raise,
            hooks_timeout=hooks_timeout,
            max_len=max_len,
            head_max_len=head_max_len,
            min_confidence=min_confidence,
            on_truncation=on_truncation,
        )[0]

    predict = system_one

    def predict_long(
        self,
        state: State,
        questions: Questions,
        window: int | None = None,
        stride: int | None = None,
        aggregate: str = "auto",
        batch_size: int | None = None,
        lang: str | None = None,
        *,
        hooks: Any = None,
        on_predict_start: Any = None,
        on_predict_end: Any = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
    ) -> Prediction:
        """Answer questions about a state of any length, window by window.

        A state that fits is answered as by `predict`. A longer one is read in overlapping windows;
        each question gets the answer of the window that is clearest about it, with `window`
        telling which. Start hooks see the window texts as `ctx.states`.

        Args:
            state: text or JSON.
            questions: as for `predict_batch`.
            window: tokens of a window; None: what the checkpoint's budget suggests.
            stride: tokens from one window's start to the next; None: half a window.
            aggregate: only `auto` exists.
            batch_size: windows encoded together.
            lang: as for `predict_batch`.
            hooks: as for `predict_batch`, like the four arguments below.
            on_predict_start: see `hooks`.
            on_predict_end: see `hooks`.
            hooks_raise: see `hooks`.
            hooks_timeout: see `hooks`.

        Raises:
            InvalidRequestError: the request is malformed, or the questions leave no room. Raised
                before any hook runs.
        """
        call = hook_options(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        if state is None:
            raise InvalidTypeError("a state is None; pass text, a dict or a list")
        if aggregate != "auto":
            raise InvalidRequestError(f"aggregate must be 'auto', got {shorten(aggregate)}")
        plan, fits = self._plan_windows(questions, window, stride)
        tokens = self._pipeline.encoder.state_tokens(state)
        options = InferenceOptions(batch_size, lang)
        if len(tokens) <= fits:
            ctx = self._context([state], questions, options)
            result = self._call(ctx, call, options, None)[0]
            return {**result, "usage": {**result.get("usage", {}), "windows": 1}}
        return self._scan(tokens, plan, (questions, options, call))

    def state_capacity(
        self, questions: Questions, *, max_len: int | None = None, head_max_len: int | None = None
    ) -> int:
        """Tokens of a state that fit beside the longest of the questions, without a cut."""
        options = InferenceOptions(max_len=max_len, head_max_len=head_max_len)
        asked = self._pipeline.prepare(as_mapping(questions), options)
        rooms = [self._pipeline.encoder.state_room(head, asked.budget) for head in asked.heads]
        return min(rooms, default=asked.budget.max_len)

    def logits(
        self,
        states: Sequence[State],
        questions: Questions,
        batch_size: int | None = None,
        *,
        max_len: int | None = None,
        head_max_len: int | None = None,
    ) -> dict[QuestionId, Float32]:
        """Raw logits, before any temperature: what `drut calibrate` fits to. No hook runs.

        Arguments and errors are those of `predict_batch`.

        Returns:
            By question id, float32 [states, options]; options in the order of the criteria,
            of a yes/no question false and true.
        """
        options = InferenceOptions(batch_size, None, max_len, head_max_len)
        return self._pipeline.logits(states, questions, options)

    def warmup(self, shapes: Sequence[tuple[int, int, int]] = ((1, 64, 3), (4, 128, 5))) -> float:
        """Run batches of made-up rows, so that the first real call is not the slow one.

        Args:
            shapes: rows, tokens and options of each batch.

        Returns:
            Seconds it took. No hook runs.
        """
        return self._pipeline.warm_up(shapes)

    def close(self) -> None:
        """Free the runtime's session; later calls, and rows that wait, fail with an error.

        Passes in flight end first. The error is `RuntimeClosedError`.
        """
        self._pipeline.runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _context(
        self,
        states: object,
        questions: object,
        options: InferenceOptions,
        *,
        document: bool = False,
    ) -> PredictContext:
        return PredictContext(
            states,
            questions,
            model=self.model_id,
            agent=self,
            max_len=options.max_len,
            head_max_len=options.head_max_len,
            lang=options.lang,
            document=document,
        )

    def _call(
        self, ctx: PredictContext, call: HookOptions, options: InferenceOptions, gate: Gate | None
    ) -> list[Prediction]:
        """The one implementation: hooks around the pipeline."""
        with self._chain(call).call(ctx):
            if ctx.results is None:
                ctx.results = self._pipeline.answer(
                    ctx.states, ctx.questions, _with_budget(options, ctx)
                )
            totals = total_usage(ctx.results)  # in here: a malformed result fails like any other
            if gate is not None:
                gate.apply(ctx.results)
            ctx.usage = totals
        return ctx.results

    def _plan_windows(
        self, questions: Questions, window: int | None, stride: int | None
    ) -> tuple[WindowPlan, int]:
        """Windows for these questions, and the longest state that needs none, in tokens."""
        for name, value in (("window", window), ("stride", stride)):
            if value is not None:
                whole_number(name, value, least=-(1 << 62))
        config = self.checkpoint.config
        default = default_window(config.max_len, config.head_max_len)
        room = self.state_capacity(questions) if as_mapping(questions) else None
        if room == 0:
            raise InvalidRequestError(
                f"the questions leave no room for any state in max_len={config.max_len} "
                f"(head_max_len={config.head_max_len}); ask fewer or shorter options"
            )
        plan = plan_windows(window=window, stride=stride, default=default, room=room)
        explicit = window is not None and window > 0
        return plan, plan.size if explicit or room is None else room

    def _scan(
        self,
        tokens: Sequence[int],
        plan: WindowPlan,
        request: tuple[Questions, InferenceOptions, HookOptions],
    ) -> Prediction:
        questions, options, call = request
        spans = plan.spans(len(tokens))
        texts = [self._pipeline.encoder.decode(tokens[start:end]) for start, end in spans]
        if options.batch_size is None:
            options = InferenceOptions(plan.batch_size(len(spans)), options.lang)
        ctx = self._context(list(texts), questions, options, document=True)
        results = self._call(ctx, call, options, None)
        if len(results) == 1 and len(spans) > 1 and len(ctx.states) == len(spans):
            # A hook answered the whole document.
            return {**results[0], "usage": {**results[0].get("usage", {}), "windows": 0}}
        if not results:
            warnings.warn(
                "a hook emptied the windows, so nothing is answered", RuntimeWarning, stacklevel=3
            )
            usage = {"input_tokens": 0, "output_tokens": 0, "windows": 0}
            return {"answers": {}, "usage": usage}  # type: ignore[typeddict-item]
        return merge_windows(results, spans if list(ctx.states) == texts else None)


def _with_budget(options: InferenceOptions, ctx: PredictContext) -> InferenceOptions:
    return InferenceOptions(
        options.batch_size,
        ctx.lang,
        ctx.max_len,
        ctx.head_max_len,
        options.sort_by_length,
        options.on_truncation,
    )
