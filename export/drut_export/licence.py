"""Under which licence a checkpoint is: what its model card says, else its LICENSE file."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from drut.checkpoint.source import MODEL_CARD

FRONT_MATTER: Final = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.S | re.M)

UNTOLD: Final = ("other", "unknown")
"""What cards write where they name no licence; `license_name` may."""

SPDX: Final[Mapping[str, str]] = MappingProxyType(
    {
        name.lower(): name
        for name in ("Apache-2.0", "MIT", "BSD-3-Clause", "CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0")
    }
)
"""Names of the hub, in lower case, to those of SPDX."""

_TEXTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "Apache-2.0": (
            "Apache License Version 2.0, January 2004",
            "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION",
            "END OF TERMS AND CONDITIONS",
        ),
        "MIT": (
            "Permission is hereby granted, free of charge, to any person obtaining a copy of this "
            "software and associated documentation files",
            "The above copyright notice and this permission notice shall be included in all copies",
        ),
    }
)
"""Passages that together stand in no other licence; the first of them near the beginning."""

PREFACE: Final = 300
"""Characters before the first passage: a copyright line, but no further conditions."""

RIDER: Final = "Commons Clause"


def licence_of(directory: Path) -> str | None:
    """Name of the licence that a checkpoint's files state, of SPDX where it has one.

    Args:
        directory: where README.md and LICENSE lie.

    Returns:
        None where they name none, or where a text is not recognised beyond doubt.
    """
    return _of_card(directory / MODEL_CARD) or _of_texts(directory)


def _of_card(card: Path) -> str | None:
    found = FRONT_MATTER.match(_read(card))
    if found is None:
        return None
    import yaml

    try:
        facts: Any = yaml.safe_load(found[1])
    except yaml.YAMLError:
        return None  # a card is for people: a slip in it is no reason to refuse an export
    if not isinstance(facts, dict):
        return None
    for key in ("license", "license_name"):
        value = facts.get(key)
        named = value.strip() if isinstance(value, str) else ""
        if named and named.lower() not in UNTOLD:
            return SPDX.get(named.lower(), named)
    return None


def _of_texts(directory: Path) -> str | None:
    """The one licence that the LICENSE files hold; None where they hold several or another one."""
    names = {_recognised(_read(path)) for path in directory.glob("LICENSE*") if path.is_file()}
    return names.pop() if len(names) == 1 else None


def _recognised(text: str) -> str | None:
    flat = " ".join(text.split())
    found = [
        name
        for name, parts in _TEXTS.items()
        if 0 <= flat.find(parts[0]) <= PREFACE and all(part in flat for part in parts)
    ]
    return found[0] if len(found) == 1 and RIDER not in flat else None


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
