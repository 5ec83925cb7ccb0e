"""Installed hooks, and the hook arguments of constructors and calls."""

import threading
from typing import Any

import pytest

from drut.errors import InvalidHookError, InvalidRequestError
from drut.hooks.context import PredictContext
from drut.hooks.protocol import BaseHook, CallbackHook, as_callbacks, as_hooks
from drut.hooks.registry import HookOptions, HookOwner, hook_options, parse_timeout
from lifecycle_helpers import Hook


def owner(*hooks: object, concurrent: bool = True, **options: Any) -> HookOwner:
    return HookOwner(hook_options(list(hooks), **options), concurrent=concurrent)


def test_add_hook_takes_one_or_several_and_returns_the_owner() -> None:
    first, second, third = BaseHook(), BaseHook(), BaseHook()
    it = owner(first)
    assert it.add_hook(second).add_hook([third, first]) is it
    assert it.hooks == (first, second, third, first)


def test_add_hook_installs_all_or_nothing() -> None:
    it = owner()
    with pytest.raises(InvalidHookError, match=r"hooks\[1\] is a int without any of the methods"):
        it.add_hook([BaseHook(), 5])
    assert it.hooks == ()


def test_remove_hook_removes_the_latest_copy_by_identity() -> None:
    class Equal(BaseHook):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    first, second = Equal(), Equal()
    it = owner(first, second, first)
    assert it.remove_hook(first) is True
    assert [hook is first for hook in it.hooks] == [True, False]
    assert it.remove_hook(Equal()) is False
    assert len(it.hooks) == 2


def test_hooks_installed_takes_back_what_it_added_and_no_more() -> None:
    always, extra = BaseHook(), BaseHook()
    it = owner(always, extra)
    with it.hooks_installed(extra, always) as same:
        assert same is it
        assert it.hooks == (always, extra, extra, always)
        it.add_hook(BaseHook())
    assert it.hooks[:2] == (always, extra)
    assert len(it.hooks) == 3


def test_hooks_installed_survives_hooks_that_are_gone_already() -> None:
    hook = BaseHook()
    it = owner()
    with it.hooks_installed(hook):
        it.remove_hook(hook)
    assert it.hooks == ()


def test_installing_from_many_threads_loses_no_hook() -> None:
    it = owner()
    threads = [
        threading.Thread(target=lambda: [it.add_hook(BaseHook()) for _ in range(50)])
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(it.hooks)) == 400


@pytest.mark.parametrize(
    ("installed", "call", "expected"),
    [
        ((True, None), (None, None), (True, None)),
        ((True, 2.0), (None, None), (True, 2.0)),
        ((False, 2.0), (True, 3.0), (True, 3.0)),
        ((True, 2.0), (False, None), (False, 2.0)),
        ((None, None), (None, 1), (True, 1.0)),
    ],
)
def test_a_call_overrides_what_was_installed(
    installed: tuple[Any, Any], call: tuple[Any, Any], expected: tuple[Any, Any]
) -> None:
    it = owner(hooks_raise=installed[0], hooks_timeout=installed[1])
    policy = it._chain(HookOptions((), *call)).policy
    assert (policy.raise_errors, policy.timeout) == expected
    assert policy.guard is None


def test_all_calls_of_a_serial_owner_share_one_guard() -> None:
    it = owner(concurrent=False)
    guards = [it._chain(HookOptions(timeout=limit)).policy.guard for limit in (None, 1.0)]
    assert guards[0] is guards[1] is not None
    assert owner(concurrent=False)._chain(HookOptions()).policy.guard is not guards[0]


@pytest.mark.parametrize(("value", "seconds"), [(None, None), (2, 2.0), (0.5, 0.5), ("3", 3.0)])
def test_a_timeout_is_a_positive_number_of_seconds(value: Any, seconds: float | None) -> None:
    assert parse_timeout(value) == seconds


def test_a_timeout_beyond_what_a_thread_can_wait_is_that_long() -> None:
    hook = Hook([])
    it = owner(hook, hooks_timeout=1e300)
    with it._chain(HookOptions()).call(PredictContext([], {})):
        assert len(hook.contexts) == 1
    assert parse_timeout(1e300) == threading.TIMEOUT_MAX


@pytest.mark.parametrize(
    "value",
    [0, -1, True, False, float("nan"), float("inf"), "soon", [], {}, 10**400],
    ids=lambda value: repr(value)[:10],
)
def test_any_other_timeout_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="hooks_timeout must be a positive number"):
        parse_timeout(value)


def test_callables_run_behind_hooks_start_before_end() -> None:
    hook = BaseHook()
    options = hook_options([hook], print, [len, repr])
    assert options.hooks[0] is hook
    assert [repr(each) for each in options.hooks[1:]] == [
        "CallbackHook('print')",
        "CallbackHook('len')",
        "CallbackHook('repr')",
    ]
    assert isinstance(options.hooks[1], CallbackHook)


@pytest.mark.parametrize("functions", [5, "print", [print, None], {"on": print}])
def test_what_is_not_callable_is_no_callback(functions: Any) -> None:
    with pytest.raises(InvalidHookError, match="on_predict_start takes a function or a list of"):
        as_callbacks("on_predict_start", functions)


@pytest.mark.parametrize("empty", [None, [], (), iter(())])
def test_no_hooks_are_no_hooks(empty: Any) -> None:
    assert as_hooks(empty) == ()


def test_one_hook_needs_no_list_and_a_hook_that_is_iterable_stays_one() -> None:
    class Iterable(BaseHook):
        def __iter__(self) -> Any:
            raise AssertionError("iterated")

    hook, iterable = Hook([]), Iterable()
    assert as_hooks(hook) == (hook,)
    assert as_hooks(iterable) == (iterable,)


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({BaseHook()}, "^hooks is a set, but hooks run in order: pass a list$"),
        (frozenset(), "^hooks is a set, but"),
        ({}.keys(), "^hooks is a set, but"),
        ("hook", r"^hooks\[0\] is a str without any of the methods on_predict_start, on_predict"),
        (5, "^hooks is a int without any of the methods"),
        ([None], r"^hooks\[0\] is a NoneType without"),
        ([BaseHook(), [BaseHook()]], r"^hooks\[1\] is a list without"),
        (BaseHook, "^hooks is the class BaseHook; pass an instance of it$"),
        (iter([BaseHook]), r"^hooks\[0\] is the class BaseHook; pass an instance of it$"),
        (len, r"^hooks is a plain function; pass it as on_predict_start= or on_predict_end=$"),
    ],
)
def test_what_cannot_be_a_hook_is_refused_with_its_place_and_the_remedy(
    hooks: Any, message: str
) -> None:
    with pytest.raises(InvalidHookError, match=message) as caught:
        as_hooks(hooks)
    assert isinstance(caught.value, TypeError)


def test_an_event_that_is_not_callable_is_refused() -> None:
    class Odd:
        on_predict_start = "soon"

        def on_predict_end(self, ctx: Any) -> None:
            """Do nothing."""

    with pytest.raises(InvalidHookError, match=r"hooks: Odd\.on_predict_start is not callable"):
        as_hooks(Odd())
