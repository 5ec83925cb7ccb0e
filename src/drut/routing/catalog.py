"""The checkpoints a Router knows: names, aliases, and where each comes from."""

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.questions import shorten
from drut.routing.requests import closest

ENGLISH: Final = "english"
MULTILINGUAL: Final = "multilingual"
TYPED_DECISIONS: Final = "typed-decisions"
STARTER: Final = "starter"

AUTOMATIC: Final = frozenset({"", "auto"})
"""Model names that mean "route for me"."""

ALIASES: Final[Mapping[str, str]] = {
    "en": ENGLISH,
    "laya": ENGLISH,
    "default": ENGLISH,
    "multi": MULTILINGUAL,
    "ml": MULTILINGUAL,
    "laya-multilingual": MULTILINGUAL,
    "typed": TYPED_DECISIONS,
    "typed_decisions": TYPED_DECISIONS,
    "laya-typed-decisions": TYPED_DECISIONS,
    "decisions": TYPED_DECISIONS,
}

_HUB_BUNDLE: Final = "convaiinnovations/laya"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")
_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint comes from."""

    location: str  # hub repository, absolute directory, or name of an exported bundle
    subfolder: str | None = None

    def __str__(self) -> str:
        return "/".join(filter(None, (self.location, self.subfolder)))

    @property
    def on_hub(self) -> bool:
        """Whether it is a hub repository, which is exported before it can be used."""
        return (
            not Path(self.location).is_absolute() and _HUB_ID.fullmatch(self.location) is not None
        )


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint of the catalogue."""

    source: Source | None  # None: it can only be attached
    description: str | None = None
    built_in: bool = False


BUILT_IN: Final[Mapping[str, Entry]] = {
    ENGLISH: Entry(
        Source(_HUB_BUNDLE), "ModernBERT-large, 421M parameters, English, 512 tokens", built_in=True
    ),
    MULTILINGUAL: Entry(
        Source(_HUB_BUNDLE, MULTILINGUAL),
        "mmBERT-base, 322M parameters, more than 100 languages, 1024 tokens",
        built_in=True,
    ),
    TYPED_DECISIONS: Entry(
        Source(_HUB_BUNDLE, TYPED_DECISIONS),
        "ModernBERT-large, 421M parameters, four fixed workflows, 1024 tokens",
        built_in=True,
    ),
    STARTER: Entry(Source(STARTER), "small checkpoint that ships with drut", built_in=True),
}

_STANDALONE: Final = {
    ENGLISH: Source(_HUB_BUNDLE),
    MULTILINGUAL: Source("convaiinnovations/laya-multilingual"),
    TYPED_DECISIONS: Source("convaiinnovations/laya-typed-decisions"),
}


class Catalog:
    """Name to entry. A change is one assignment, so readers need no lock."""

    def __init__(
        self, models: Mapping[str, object] | None = None, *, standalone_repos: bool = False
    ) -> None:
        self._entries = dict(BUILT_IN)
        if standalone_repos:
            for name, source in _STANDALONE.items():
                self._entries[name] = replace(self._entries[name], source=source)
        if not isinstance(models, Mapping | None):
            raise InvalidTypeError(
                f"models must map names to sources, got {type(models).__name__}: {shorten(models)}"
            )
        for name, given in (models or {}).items():
            self.register(name, given)

    def __getitem__(self, name: str) -> Entry:
        return self._entries.get(name) or self._entries[self.resolve(name)]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def entries(self) -> dict[str, Entry]:
        """Every known checkpoint: those built in, then the own ones as they were registered."""
        return dict(self._entries)

    def resolve(self, name: object) -> str:
        """Return the canonical form of a name or alias.

        Raises:
            InvalidTypeError: it is not a string.
            InvalidRequestError: nothing is registered under it.
        """
        if not isinstance(name, str):
            raise InvalidTypeError(
                f"a checkpoint is named by a string, got {type(name).__name__}: {shorten(name)}"
            )
        key = _canonical(name)
        if key not in self._entries:
            known = sorted(self._entries)
            raise InvalidRequestError(
                f"unknown checkpoint {shorten(name)}{closest(key, [*known, *ALIASES])}. Known are "
                f"{', '.join(known)}; aliases are {', '.join(sorted(ALIASES))}. Add others with "
                "Router(models={name: source}) or register(name, source)"
            )
        return key

    def register(self, name: object, source: object, description: str | None = None) -> str:
        """Add a checkpoint or point a known one elsewhere; returns its canonical name.

        Raises:
            InvalidTypeError: the source is neither a string, a path, a pair nor None.
            InvalidRequestError: the name cannot be used.
        """
        key = _new_name(name)
        entry = self._entries.get(key)
        self._entries[key] = Entry(
            as_source(source),
            description if description is not None or entry is None else entry.description,
            built_in=entry is not None and entry.built_in,
        )
        return key

    def remove(self, name: str) -> None:
        """Forget an own checkpoint.

        Raises:
            InvalidRequestError: it is built in.
        """
        if self[name].built_in:
            raise InvalidRequestError(f"{name!r} is built in and cannot be unregistered")
        self._entries.pop(name, None)

    def own(self) -> dict[str, dict[str, Any]]:
        """The checkpoints that are not built in, as plain data."""
        return {
            name: {
                "source": None if entry.source is None else str(entry.source),
                "description": entry.description,
            }
            for name, entry in self.entries().items()
            if not entry.built_in
        }


def as_source(value: object) -> Source | None:
    """Read a source: a string, a path, a `(repository, subfolder)` pair, or None.

    Local paths become absolute, so that a later change of directory does not matter.

    Raises:
        InvalidTypeError: it is something else.
    """
    if value is None:
        return None
    if isinstance(value, str | Path) and str(value).strip():
        return Source(_location(value))
    pair = tuple(value) if isinstance(value, list | tuple) else ()
    if len(pair) == 2 and _is_text(pair[0]) and (pair[1] is None or isinstance(pair[1], str)):
        return Source(_location(pair[0]), (pair[1] or "").strip("/ ") or None)
    raise InvalidTypeError(
        "a source is a hub repository, a directory, the name of an exported bundle, a pair "
        f"(repository, subfolder) or None; got {shorten(value)}"
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str | Path) and bool(str(value).strip())


def _location(value: str | Path) -> str:
    text = str(value).strip()
    path = Path(text).expanduser()
    if isinstance(value, Path) or text.startswith((".", "~", "/", "\\")) or path.is_dir():
        return str(path.resolve())
    return text


def _canonical(name: str) -> str:
    key = name.strip().lower()
    return ALIASES.get(key, key)


def _new_name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidTypeError(
            f"a checkpoint is named by a string, got {type(name).__name__}: {shorten(name)}"
        )
    key = _canonical(name)
    if key in AUTOMATIC or _NAME.fullmatch(key) is None:
        raise InvalidRequestError(
            f"{shorten(name)} cannot name a checkpoint: use letters, digits, '.', '_' and '-', "
            "with a letter or digit first, and not 'auto'"
        )
    if key not in BUILT_IN:
        near = [known for known in BUILT_IN if _one_edit_apart(key, known)]
        if near:
            warnings.warn(
                f"the checkpoint name {key!r} is one letter away from the built-in {near[0]!r}",
                RuntimeWarning,
                stacklevel=4,
            )
    return key


def _one_edit_apart(one: str, other: str) -> bool:
    """Whether one insertion, deletion, substitution or adjacent swap makes them equal."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    rest, rest_other = one[start:], other[start:]
    swapped = rest[1::-1] + rest[2:] if len(rest) > 1 else rest
    return (
        rest[1:] == rest_other
        or rest == rest_other[1:]
        or rest[1:] == rest_other[1:]
        or swapped == rest_other
    )
