"""The half of the Router that knows checkpoints: their names, and which are resident."""

import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.hooks.context import PredictContext
from drut.hooks.protocol import Event
from drut.hooks.registry import HookOptions, HookOwner
from drut.questions import shorten
from drut.routing.agents import AgentHandle, as_handle
from drut.routing.building import BuildSettings, no_source
from drut.routing.catalog import Catalog, Source
from drut.routing.policy import RoutingPolicy
from drut.routing.residency import Residency

_log = logging.getLogger(__name__)
_OF_THE_ROUTER = HookOptions()


class CheckpointKeeper(HookOwner):
    """Loads checkpoints at first use and keeps the most recently used ones.

    Safe to call from many threads. `on_load` and `on_evict` fire on the thread that caused them,
    outside every lock, and only for installed hooks: a load may serve several calls.
    """

    def __init__(
        self,
        hooks: HookOptions,
        policy: RoutingPolicy,
        settings: BuildSettings,
        build: Callable[[str], Any],
        *,
        max_loaded: int,
        hooks_concurrent: bool,
    ) -> None:
        super().__init__(hooks, concurrent=hooks_concurrent)
        self._routing = policy
        self._settings = settings
        self._build_agent = build
        self._residency: Residency[AgentHandle] = Residency(
            self._build, _dispose, self._tell, _capacity(max_loaded)
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(loaded={self.loaded!r}, max_loaded={self.max_loaded}, "
            f"default={self.default!r})"
        )

    @property
    def _catalog(self) -> Catalog:
        return self._routing.catalog

    @property
    def models(self) -> dict[str, Source | None]:
        """Known checkpoints with where they come from; a copy."""
        return {name: entry.source for name, entry in self._catalog.entries().items()}

    @property
    def registered(self) -> dict[str, dict[str, Any]]:
        """Own checkpoints: name to `source` and `description`."""
        return self._catalog.own()

    @property
    def auto_task_detection(self) -> bool:
        """Whether question ids of a workflow choose `typed-decisions`."""
        return self._routing.auto_task_detection

    @auto_task_detection.setter
    def auto_task_detection(self, value: bool) -> None:
        self._routing.auto_task_detection = value

    @property
    def lang_guess(self) -> Any:
        """The installed language hint."""
        return self._routing.lang_guess

    @lang_guess.setter
    def lang_guess(self, value: Any) -> None:
        self._routing.lang_guess = value

    @property
    def default(self) -> str:
        """Checkpoint for states whose language stays undecided or that hold no letters."""
        return self._routing.default

    @default.setter
    def default(self, name: str) -> None:
        self._routing.default = self.resolve(name)

    @property
    def max_loaded(self) -> int:
        """How many checkpoints stay resident; a lower value takes effect with the next load."""
        return self._residency.capacity

    @max_loaded.setter
    def max_loaded(self, value: int) -> None:
        self._residency.capacity = _capacity(value)

    @property
    def loaded(self) -> list[str]:
        """Resident checkpoints, least recently used first."""
        return self._residency.names()

    @property
    def loaded_revisions(self) -> dict[str, str | None]:
        """Resident checkpoints with the hub commit they were exported from, where known."""
        values = self._residency.values()
        return {name: getattr(handle.agent, "revision", None) for name, handle in values}

    @property
    def pinned(self) -> list[str]:
        """Checkpoints that are never evicted to make room, sorted."""
        return self._residency.pinned()

    def resolve(self, name: str) -> str:
        """Return the canonical name of a checkpoint.

        Raises:
            InvalidRequestError: unknown; the message has the closest name.
        """
        return self._catalog.resolve(name)

    def register(self, name: str, source: Any, description: str | None = None) -> str:
        """Add a checkpoint, or point a known one elsewhere. Builds nothing.

        A resident agent of another source is unloaded.

        Args:
            name: letters, digits, `.`, `_` and `-`; a built-in name or alias re-points that one.
            source: hub repository, directory, name of an exported bundle, a pair
                `(repository, subfolder)`, or None for a checkpoint that is only attached.
            description: one line for people.

        Returns:
            The canonical name.
        """
        before = self.models
        key = self._catalog.register(name, source, description)
        if key in before and before[key] != self._catalog[key].source:
            self._residency.drop(key)
        return key

    def unregister(self, name: str) -> None:
        """Forget an own checkpoint, and unload it.

        Raises:
            InvalidRequestError: it is unknown, built in, or the current default.
        """
        key = self.resolve(name)
        if key == self.default:
            raise InvalidRequestError(f"{key!r} is the default; set another default first")
        self._catalog.remove(key)
        self._residency.drop(key)
        self._settings.forget(key)

    def load(self, name: str) -> Any:
        """Return the agent of a checkpoint, building it if it is not resident.

        What `load` returned stays usable after an eviction, so its memory is the caller's; agents
        that nobody asked for this way are closed when the last call that uses them ends.

        Raises:
            CheckpointError: it cannot be built.
            RuntimeClosedError: the Router is closed.
        """
        return self._residency.lease(self.resolve(name)).hand_out().agent

    def attach(self, name: str, agent: Any) -> Any:
        """Make an agent resident under a name, known or new. Fires no event; returns the agent.

        It takes the place of a resident agent or of one being built. The cap is raised to fit. An
        attached agent is never closed by the Router.

        Raises:
            InvalidTypeError: it lacks `system_one` or `predict_batch`.
        """
        handle = as_handle(agent)
        try:
            key = self.resolve(name)
        except InvalidTypeError:
            raise
        except InvalidRequestError:
            key = self._catalog.register(name, None)
        self._residency.put(key, handle)
        return agent

    def unload(self, name: str | None = None) -> None:
        """Let go of one checkpoint, or of all, after builds in flight; fires `on_evict`."""
        if name is None:
            self._residency.drop_all()
        else:
            self._residency.drop(self.resolve(name))

    def preload(self, names: str | Iterable[str] | None = None) -> Self:
        """Build checkpoints ahead of use, in order; the cap is raised so that they all fit.

        Args:
            names: None means every checkpoint that has a source.
        """
        if names is None:
            wanted = [name for name, source in self.models.items() if source is not None]
        else:
            wanted = [self.resolve(name) for name in ([names] if isinstance(names, str) else names)]
        self._residency.make_room(wanted)
        for name in wanted:
            with self._residency.lease(name):
                pass
        return self

    def pin(self, *names: str) -> Self:
        """Load checkpoints and never evict them to make room; `unload` still lets go of them.

        Pinned checkpoints count: while they fill `max_loaded`, one more stays resident beside
        them, the one used last.
        """
        for key in [self.resolve(name) for name in names]:
            self._residency.pin(key)
            try:
                with self._residency.lease(key):
                    pass
            except BaseException:
                self._residency.unpin(key)
                raise
        return self

    def unpin(self, *names: str) -> Self:
        """Let pinned checkpoints be evicted again, when room is needed."""
        for key in [self.resolve(name) for name in names]:
            self._residency.unpin(key)
        return self

    def close(self) -> None:
        """Unload everything for good. Calls in progress end; later ones raise an error.

        Agents that the Router built are closed, when the last call that uses them ends; attached
        ones are left to whoever made them.
        """
        self._residency.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _build(self, name: str) -> AgentHandle:
        if name not in self._catalog or self._catalog[name].source is None:
            raise no_source(name)
        return as_handle(self._build_agent(name))

    def _tell(self, evicted: tuple[str, ...], loaded: tuple[str, AgentHandle] | None) -> None:
        """Every `on_evict`, then `on_load`; a hook that raises stops none of them."""
        chain = self._chain(_OF_THE_ROUTER)
        if not chain.hooks:
            return
        events: list[tuple[Event, PredictContext]] = [
            ("on_evict", PredictContext([], {}, model=name, router=self)) for name in evicted
        ]
        if loaded is not None:
            name, handle = loaded
            ctx = PredictContext([], {}, model=name, agent=handle.agent, router=self)
            events.append(("on_load", ctx))
        chain.fire_all(events)


def _dispose(handle: AgentHandle) -> None:
    close = getattr(handle.agent, "close", None)
    if not callable(close):
        return
    try:
        close()
    except Exception:  # noqa: BLE001 - the call at hand did not cause it, and has its answer
        _log.warning("closing %s failed", type(handle.agent).__name__, exc_info=True)


def _capacity(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidTypeError(f"max_loaded must be a whole number, got {shorten(value)}")
    return max(1, value)
