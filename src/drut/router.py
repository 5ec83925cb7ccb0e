"""Router: every request is answered by the checkpoint that suits it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from drut import loading, settings
from drut.decoding.gate import parse_min_confidence
from drut.errors import InvalidRequestError
from drut.hooks.chain import HookChain
from drut.hooks.context import PredictContext
from drut.hooks.registry import hook_options
from drut.questions import as_mapping
from drut.routing.answering import (
    AnswerOptions,
    GroupSizes,
    Routed,
    answer_group,
    answer_long,
    answer_one,
    result_of,
    sorting_report,
)
from drut.routing.building import (
    BuildSettings,
    BundleBuilder,
    check_agent_kwargs,
    digests_by_name,
    revisions_by_name,
    stripped,
    with_runtime,
)
from drut.routing.catalog import MULTILINGUAL, Catalog
from drut.routing.decision import RouteDecision, as_decision, explained
from drut.routing.keeper import CheckpointKeeper
from drut.routing.policy import RoutingPolicy
from drut.routing.requests import RouteRequest, answerable, read_requests
from drut.runtimes.opening import RuntimeName
from drut.runtimes.triton_options import Headers, TlsOptions
from drut.schema import MinConfidence, OnTruncation, Prediction, Questions, State
from drut.streaming import AnswersStreams

# The public methods take upstream's arguments by upstream's names, more than the usual limit.
# ruff: noqa: PLR0913, PLR0917

_Answer = Callable[[PredictContext, Routed, Any, AnswerOptions], None]


class Router(CheckpointKeeper, AnswersStreams):
    """Answers every request with the checkpoint that suits it.

    Checkpoints are loaded at first use. Safe to call from many threads.

    Args:
        models: name to source; a built-in name or alias re-points that checkpoint, any other name
            adds one. See `register` for what a source may be.
        device: of every agent that is built.
        token: accepted for compatibility; bundles lie on this machine, so nothing is downloaded.
        revision: hub revision that every bundle must have been exported from, where a commit (or
            `reviewed`) is given; None reads `DRUT_REVISION`.
        revisions: the same for single checkpoints, by name.
        max_loaded: how many checkpoints stay resident. During a build there is one more.
        default: checkpoint for states whose language stays undecided or that hold no letters.
        auto_task_detection: choose `typed-decisions` where the question ids are exactly those of
            one of its workflows.
        standalone_repos: take the hub's one-checkpoint repositories as sources.
        preload: build everything that has a source before returning, or the names given.
        lang_guess: language code, or a function of the state that returns one or None; decides
            where neither names nor `lang` do, before the text is looked at.
        hooks: hooks installed from the start.
        on_predict_start: function or functions installed as start hooks, behind `hooks`.
        on_predict_end: the same for end hooks.
        hooks_raise: whether a hook's error stops a call; False turns it into a warning.
        hooks_concurrent: whether hooks of different threads may overlap.
        hooks_timeout: seconds a hook may take.
        runtime: of every agent: `onnxruntime` or `triton`; None leaves it to `agent_kwargs`.
        url: of the Triton server. A model that is not ready there is loaded, and unloaded when it
            is evicted, where the server's model control allows it.
        headers: sent to that server, as for `drut.Agent`.
        tls: how that server is trusted, as for `drut.Agent`.
        agent_kwargs: further arguments of every `drut.Agent` that is built.
        sha256_digests: checkpoint name to relative path to SHA-256, checked before a bundle is
            read; wins over `expected_sha256` in `agent_kwargs`.
        model_repository: directory searched for bundles before the usual ones.
        factory: builds the agent of a canonical name, instead of opening a bundle.

    Raises:
        InvalidRequestError: an argument cannot be used; unknown names come with the closest one.
        CheckpointError: `preload` could not build a checkpoint.
    """

    def __init__(
        self,
        models: Mapping[str, Any] | None = None,
        device: str | None = None,
        token: str | None = None,
        revision: str | None = None,
        revisions: Mapping[str, str | None] | None = None,
        max_loaded: int = 2,
        default: str = MULTILINGUAL,
        auto_task_detection: bool = False,
        standalone_repos: bool = False,
        preload: bool | Iterable[str] = False,
        lang_guess: Any = None,
        *,
        hooks: Any = None,
        on_predict_start: Any = None,
        on_predict_end: Any = None,
        hooks_raise: bool = True,
        hooks_concurrent: bool = True,
        hooks_timeout: float | None = None,
        runtime: RuntimeName | None = None,
        url: str | None = None,
        headers: Headers | None = None,
        tls: TlsOptions | Mapping[str, Any] | None = None,
        agent_kwargs: Mapping[str, Any] | None = None,
        sha256_digests: Mapping[str, Mapping[str, str]] | None = None,
        model_repository: str | Path | None = None,
        factory: Callable[[str], Any] | None = None,
    ) -> None:
        installed = hook_options(
            hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout
        )
        catalog = Catalog(models, standalone_repos=standalone_repos)
        build_settings = BuildSettings(
            device,
            model_repository,
            stripped(revision),
            revisions_by_name(revisions, catalog.resolve),
            with_runtime(
                check_agent_kwargs(agent_kwargs, loading.Agent),
                {"runtime": runtime, "url": url, "headers": headers, "tls": tls},
            ),
            digests_by_name(sha256_digests, catalog.resolve),
        )
        if factory is not None and build_settings.agent_kwargs:
            raise InvalidRequestError(
                "agent_kwargs and runtime have no effect beside factory; leave them out"
            )
        super().__init__(
            installed,
            RoutingPolicy(catalog, catalog.resolve(default), auto_task_detection, lang_guess),
            build_settings,
            factory or _bundles(catalog, build_settings),
            max_loaded=max_loaded,
            hooks_concurrent=hooks_concurrent,
        )
        if preload:
            self.preload(None if preload is True else preload)

    def route(
        self,
        state: State,
        questions: Questions | None = None,
        model: str | None = None,
        task: str | None = None,
        lang: str | None = None,
        lang_guess: Any = None,
        hooks: Any = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
        *,
        explain: bool = False,
    ) -> RouteDecision:
        """Say which checkpoint would answer, and why. Loads nothing; fires `on_route`.

        Args:
            state: text or JSON; None counts as text without letters.
            questions: their ids are compared with those of the workflows.
            model: name or alias of a checkpoint; `auto` and blank leave the choice to the Router.
            task: `typed_decisions`, or the name of a checkpoint.
            lang: language code of the state.
            lang_guess: language code, or a function of the state; less certain than `lang`.
            hooks: hooks of this call, run behind the installed ones.
            hooks_raise: whether a hook's error stops the call; None: as installed.
            hooks_timeout: seconds per hook; None: as installed.
            explain: say under `detection["diagnostic"]` which part of the text decided.

        Raises:
            InvalidRequestError: an unknown name, or a hook left a decision that is none.
        """
        chain = self._chain(
            hook_options(hooks, hooks_raise=hooks_raise, hooks_timeout=hooks_timeout)
        )
        request = RouteRequest(state, questions, model, task, lang, lang_guess)
        if questions is not None:
            as_mapping(questions)
        decision = self._route(request, self._routing.decide(request), chain).decision
        return explained(decision) if explain else decision

    def route_batch(
        self,
        requests: Iterable[Mapping[str, Any]],
        hooks_timeout: float | None = None,
        *,
        hooks: Any = None,
        hooks_raise: bool | None = None,
        explain: bool = False,
    ) -> list[RouteDecision]:
        """Route every request of a batch, as `route` would; decisions in input order.

        All requests are checked before the first hook runs. See `predict_batch` for their keys.
        """
        chain = self._chain(
            hook_options(hooks, hooks_raise=hooks_raise, hooks_timeout=hooks_timeout)
        )
        decisions = [routed.decision for routed in self._route_all(requests, chain)]
        return [explained(decision) for decision in decisions] if explain else decisions

    def predict(
        self,
        state: State,
        questions: Questions,
        model: str | None = None,
        task: str | None = None,
        lang: str | None = None,
        lang_guess: Any = None,
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
        """Answer questions about one state with the checkpoint that suits it.

        The arguments up to `lang_guess` are those of `route`, the others those of
        `Agent.predict_batch`. The result has the decision under `routing`.

        Raises:
            InvalidRequestError: the request is malformed. Raised before any hook runs, unless
                only the agent can tell.
            CheckpointError: the checkpoint cannot be loaded; no predict event fires.
        """
        call = hook_options(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        options = AnswerOptions(parse_min_confidence(min_confidence), _truncation(on_truncation))
        request = RouteRequest(
            state, questions, model, task, lang, lang_guess, max_len, head_max_len
        )
        return self._answer(request, self._chain(call), options, answer_one)

    def predict_batch(
        self,
        requests: Iterable[Mapping[str, Any]],
        batch_size: int | None = None,
        hooks_timeout: float | None = None,
        min_confidence: MinConfidence | None = None,
        sort_by_length: bool = False,
        *,
        hooks: Any = None,
        on_predict_start: Any = None,
        on_predict_end: Any = None,
        hooks_raise: bool | None = None,
        on_truncation: OnTruncation = "ignore",
        diagnostics: dict[str, Any] | None = None,
        return_exceptions: bool = False,
    ) -> list[Prediction]:
        """Answer every request; each checkpoint is loaded once, results keep the input order.

        All requests are checked, then routed, before anything is loaded. The requests of one
        checkpoint start and end together, and share forward passes where their questions, token
        budgets and languages are the same.

        Args:
            requests: dicts with `state`, `questions` and optionally `model`, `task`, `lang`,
                `lang_guess`, `max_len` and `head_max_len`, each as in `predict`.
            batch_size: states encoded together.
            hooks_timeout: seconds per hook; None: as installed.
            min_confidence: mark answers below this confidence as abstained.
            sort_by_length: put states of similar length into the same batch.
            hooks: hooks of this call, run behind the installed ones, once per request.
            on_predict_start: function or functions run as start hooks, behind `hooks`.
            on_predict_end: the same for end hooks.
            hooks_raise: whether a hook's error stops the call; None: as installed.
            on_truncation: what to do if a token budget cuts anything.
            diagnostics: a dict to write the sizes of the shared passes into, if sorting is on.
            return_exceptions: where a checkpoint's requests fail, put the exception in the place
                of each of their results and go on with the other checkpoints.

        Raises:
            InvalidRequestError: a request is malformed; no hook has run.
            DrutError: a checkpoint's requests failed; all of those that started have ended.
        """
        call = hook_options(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        chain = self._chain(call)
        agent_options = _truncation(on_truncation)
        if batch_size is not None:
            agent_options["batch_size"] = batch_size
        if sort_by_length:
            agent_options["sort_by_length"] = True
        options = AnswerOptions(parse_min_confidence(min_confidence), agent_options)
        routed = self._route_all(requests, chain)
        indices_of: dict[str, list[int]] = {}
        for index, each in enumerate(routed):
            indices_of.setdefault(each.name, []).append(index)
        results: dict[int, Any] = {}
        sizes: list[GroupSizes] = []
        for indices in indices_of.values():
            try:
                answered = self._answer_group([routed[i] for i in indices], chain, options, sizes)
            except Exception as exc:
                if not return_exceptions:
                    raise
                answered = [exc] * len(indices)
            results.update(zip(indices, answered, strict=True))
        if diagnostics is not None and sort_by_length:
            diagnostics["sort_by_length"] = sorting_report(sizes, batch_size)
        return [results[index] for index in range(len(routed))]

    def predict_long(
        self,
        state: State,
        questions: Questions,
        model: str | None = None,
        task: str | None = None,
        lang: str | None = None,
        lang_guess: Any = None,
        window: int | None = None,
        stride: int | None = None,
        aggregate: str = "auto",
        batch_size: int | None = None,
        *,
        hooks: Any = None,
        on_predict_start: Any = None,
        on_predict_end: Any = None,
        hooks_raise: bool | None = None,
        hooks_timeout: float | None = None,
    ) -> Prediction:
        """Answer questions about a state of any length, window by window.

        The Router's hooks run once around the whole, with the state as it was given. Windows are
        as in `Agent.predict_long`; `usage["windows"]` is 0 where a hook answered.
        """
        call = hook_options(hooks, on_predict_start, on_predict_end, hooks_raise, hooks_timeout)
        given = {"window": window, "stride": stride, "batch_size": batch_size}
        if aggregate != "auto":
            given["aggregate"] = cast(Any, aggregate)
        return self._answer(
            RouteRequest(state, questions, model, task, lang, lang_guess),
            self._chain(call),
            AnswerOptions(None, given),
            answer_long,
        )

    system_one = predict
    predict_many = predict_batch

    def _route_all(self, requests: object, chain: HookChain) -> list[Routed]:
        asked = read_requests(requests)
        decisions = [self._routing.decide(request) for request in asked]
        return [
            self._route(request, decision, chain)
            for request, decision in zip(asked, decisions, strict=True)
        ]

    def _route(self, request: RouteRequest, decision: RouteDecision, chain: HookChain) -> Routed:
        """Let `on_route` hooks have their say about a decision."""
        questions = {} if request.questions is None else request.questions
        ctx = PredictContext([request.state], questions, decision=decision, router=self)
        chain.fire("on_route", ctx)
        left = as_decision(ctx.decision)
        return Routed(request, left, self.resolve(left.model), ctx.run_id)

    def _answer(
        self, request: RouteRequest, chain: HookChain, options: AnswerOptions, answer: _Answer
    ) -> Prediction:
        routed = self._route(answerable(request), self._routing.decide(request), chain)
        with self._residency.lease(routed.name) as handle:
            ctx = routed.context(handle.agent, self)
            with chain.call(ctx):
                answer(ctx, routed, handle, options)
            return result_of(ctx)

    def _answer_group(
        self,
        routed: list[Routed],
        chain: HookChain,
        options: AnswerOptions,
        sizes: list[GroupSizes],
    ) -> list[Any]:
        # A method of its own, so that nothing refers to the agent once its requests have ended.
        with self._residency.lease(routed[0].name) as handle:
            contexts = [each.context(handle.agent, self) for each in routed]
            with chain.call(*contexts):
                calls = list(zip(contexts, routed, strict=True))
                sizes.append(answer_group(calls, handle, options))
            return [result_of(ctx) for ctx in contexts]


def _bundles(catalog: Catalog, build_settings: BuildSettings) -> BundleBuilder:
    places, revision = settings.model_repositories, settings.default_revision
    return BundleBuilder(catalog, build_settings, loading.Agent, places, revision)


def _truncation(wanted: OnTruncation) -> dict[str, Any]:
    return {} if wanted == "ignore" else {"on_truncation": wanted}
