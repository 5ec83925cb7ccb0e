"""How users spell option names: plain, Title Case, snake_case, SCREAMING_CASE, kebab-case."""

import random
import re
from collections.abc import Callable
from typing import TypeAlias

Style: TypeAlias = Callable[[str], str]


def plain(text: str) -> str:
    """As written."""
    return text


def snake(text: str) -> str:
    """`lower_case_with_underscores`."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or text


def screaming(text: str) -> str:
    """`UPPER_CASE_WITH_UNDERSCORES`."""
    return snake(text).upper()


def capitalised(text: str) -> str:
    """First letter in upper case."""
    return text[:1].upper() + text[1:]


def title(text: str) -> str:
    """Every Word In Upper Case."""
    return text.title()


def kebab(text: str) -> str:
    """`lower-case-with-hyphens`."""
    return "-".join(text.lower().split())


def random_style(rng: random.Random) -> Style:
    """Draw the style of one question's options."""
    styles = (plain, snake, screaming, capitalised, title, kebab)
    return rng.choices(styles, weights=(47, 17, 6, 15, 8, 7))[0]
