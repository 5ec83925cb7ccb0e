"""From the name of a checkpoint to an agent: which exported bundle it is, and how it is opened."""

import inspect
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from drut.checkpoint.bundle import Bundle, find_bundle, is_bundle, read_bundle
from drut.checkpoint.source import REVIEWED_REVISIONS, resolve_revision
from drut.errors import CheckpointNotFoundError, InvalidRequestError, InvalidTypeError
from drut.questions import shorten
from drut.routing.catalog import BUILT_IN, Catalog, Source
from drut.routing.requests import closest

ROUTER_OWNED: Final = frozenset(
    {
        "model_id_or_path",
        "device",
        "token",
        "subfolder",
        "revision",
        "model_repository",
        "hooks",
        "on_predict_start",
        "on_predict_end",
        "hooks_raise",
        "hooks_concurrent",
        "hooks_timeout",
    }
)
"""Arguments of an agent that the Router sets itself."""

_COMMIT: Final = re.compile(r"[0-9a-f]{40}")


@dataclass(slots=True)
class BuildSettings:
    """What every agent of a Router is opened with."""

    device: str | None = None
    model_repository: str | Path | None = None
    revision: str | None = None  # of every checkpoint
    revisions: dict[str, str] = field(default_factory=dict)  # of one, by name
    agent_kwargs: dict[str, Any] = field(default_factory=dict)
    digests: dict[str, dict[str, str]] = field(default_factory=dict)  # name to path to SHA-256

    def revision_of(self, name: str) -> str | None:
        """The revision asked for: of the checkpoint, else of all."""
        return self.revisions.get(name) or self.revision

    def expected_sha256(self, name: str) -> dict[str, str] | None:
        """Digests to check; those of the checkpoint win over those for all."""
        shared = self.agent_kwargs.get("expected_sha256")
        own = self.digests.get(name)
        return None if shared is None and own is None else {**(shared or {}), **(own or {})}

    def forget(self, name: str) -> None:
        """Drop what was set for one checkpoint."""
        self.revisions.pop(name, None)
        self.digests.pop(name, None)


@dataclass(frozen=True, slots=True)
class BundleBuilder:
    """Opens the exported bundle of a checkpoint.

    A name means the bundle of that name in the first model repository that has one, or the bundle
    its source points at.
    """

    catalog: Catalog
    settings: BuildSettings
    open_agent: Callable[..., Any]  # name or path, then the arguments of an agent
    repositories: Callable[[], list[Path]]  # searched in order
    default_revision: Callable[[], str | None]

    def __call__(self, name: str) -> Any:
        """Open the agent of a checkpoint.

        Raises:
            CheckpointNotFoundError: it is not exported; the message has the command that does it.
        """
        source = self.catalog[name].source
        if source is None:
            raise no_source(name)
        target = self._target(name, source)
        kwargs = {**self.settings.agent_kwargs}
        kwargs["expected_sha256"] = self.settings.expected_sha256(name)
        if self.settings.model_repository is not None:
            kwargs["model_repository"] = self.settings.model_repository
        return self.open_agent(target, device=self.settings.device, **kwargs)

    def _target(self, name: str, source: Source) -> str:
        path = Path(source.location, *filter(None, [source.subfolder]))
        version = self.settings.agent_kwargs.get("version")
        if path.is_absolute() and is_bundle(path):
            self._check_revision(name, source, read_bundle(path, version))
            return str(path)
        target = name if path.is_absolute() or source.on_hub else source.location
        bundle = find_bundle(target, self._searched(), version)
        if bundle is None:
            raise CheckpointNotFoundError(
                f"checkpoint {name!r} is not exported: no bundle {target!r} in "
                f"{', '.join(map(str, self._searched()))}. "
                f"Make it with: {self._command(name, source)}"
            )
        self._check_origin(name, source, bundle)
        self._check_revision(name, source, bundle)
        return target

    def _searched(self) -> list[Path]:
        own = self.settings.model_repository
        first = [] if own is None else [Path(own).expanduser()]
        return [*first, *self.repositories()]

    def _check_origin(self, name: str, source: Source, bundle: Bundle) -> None:
        """A bundle that happens to have the name must not answer for another checkpoint."""
        origin = bundle.manifest.get("source")
        built_in = BUILT_IN.get(name)
        if not isinstance(origin, str) or (built_in is not None and built_in.source == source):
            return
        wanted = str(source) if source.on_hub else Path(source.location).name
        if "/" in origin and source.on_hub and origin != wanted:
            raise CheckpointNotFoundError(
                f"the bundle {bundle.name!r} in {bundle.directory} was exported from {origin!r}, "
                f"but checkpoint {name!r} is {wanted!r}. Make it with: "
                f"{self._command(name, source)}"
            )

    def _check_revision(self, name: str, source: Source, bundle: Bundle) -> None:
        wanted = self._revision(name, source)
        found = bundle.manifest.get("revision")
        if wanted is None or not isinstance(found, str) or _COMMIT.fullmatch(wanted) is None:
            return  # a branch or tag cannot be compared with a commit
        if found != wanted:
            raise CheckpointNotFoundError(
                f"the bundle {bundle.name!r} in {bundle.directory} was exported from revision "
                f"{found}, but {wanted} was asked for. Make it with: {self._command(name, source)}"
            )

    def _revision(self, name: str, source: Source) -> str | None:
        wanted = self.settings.revision_of(name) or self.default_revision()
        if wanted is None or not source.on_hub:
            return None
        return resolve_revision(source.location, wanted)

    def _command(self, name: str, source: Source) -> str:
        if not source.on_hub and not Path(source.location).is_absolute():
            return f"drut export SOURCE --name {shlex.quote(source.location)}"
        words = ["drut", "export", source.location]
        if source.subfolder:
            words += ["--subfolder", source.subfolder]
        revision = self._revision(name, source)
        if revision is None and source.location.lower() in REVIEWED_REVISIONS:
            revision = "reviewed"
        if revision is not None:
            words += ["--revision", revision]
        return shlex.join([*words, "--name", name])


def no_source(name: str) -> InvalidRequestError:
    """The error for a checkpoint that can only be attached, and is not."""
    return InvalidRequestError(
        f"checkpoint {name!r} has no source to load it from; attach({name!r}, agent) it, or give "
        f"it a source with register({name!r}, source)"
    )


def check_agent_kwargs(kwargs: object, open_agent: Callable[..., Any]) -> dict[str, Any]:
    """Check the arguments that go to every agent.

    Raises:
        InvalidTypeError: not a mapping.
        InvalidRequestError: the Router sets such an argument itself, or there is none.
    """
    if kwargs is None:
        return {}
    if not isinstance(kwargs, Mapping):
        raise InvalidTypeError(f"agent_kwargs must be a dict, got {type(kwargs).__name__}")
    # The constructor says what a class takes, whatever its __new__ lets through.
    function = open_agent.__init__ if inspect.isclass(open_agent) else open_agent
    known = [name for name in inspect.signature(function).parameters if name != "self"]
    for name in kwargs:
        if name in ROUTER_OWNED:
            raise InvalidRequestError(
                f"agent_kwargs must not hold {name!r}: it is an argument of the Router itself"
            )
        if name not in known:
            raise InvalidRequestError(
                f"agent_kwargs has the unknown argument {shorten(name)}{closest(str(name), known)}"
            )
    return dict(kwargs)


def with_runtime(kwargs: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Add what a Router was told about the runtime to the arguments of every agent.

    A Router loads the models it needs on a Triton server and unloads them when it evicts them, as
    far as the server lets clients do that.

    Raises:
        InvalidRequestError: `agent_kwargs` has one of them, too.
    """
    told = {name: value for name, value in given.items() if value is not None}
    for name in told.keys() & kwargs.keys():
        raise InvalidRequestError(
            f"{name!r} is given to the Router and in agent_kwargs; leave one of the two out"
        )
    merged = {**kwargs, **told}
    if merged.get("runtime") == "triton":
        merged.setdefault("server_load", True)
    return merged


def revisions_by_name(given: object, resolve: Callable[[object], str]) -> dict[str, str]:
    """Read `revisions`; a blank one is none."""
    named = _by_name(given, "revisions", resolve)
    return {name: text for name, value in named if (text := stripped(value)) is not None}


def digests_by_name(given: object, resolve: Callable[[object], str]) -> dict[str, dict[str, str]]:
    """Read `sha256_digests`."""
    return {
        name: dict(digests or {}) for name, digests in _by_name(given, "sha256_digests", resolve)
    }


def stripped(value: str | None) -> str | None:
    """The text without blanks around it, or None if nothing is left."""
    return (value or "").strip() or None


def _by_name(
    values: object, argument: str, resolve: Callable[[object], str]
) -> list[tuple[str, Any]]:
    if not isinstance(values, Mapping | None):
        raise InvalidTypeError(
            f"{argument} must map checkpoint names to values, got {type(values).__name__}"
        )
    return [(resolve(name), value) for name, value in (values or {}).items()]
