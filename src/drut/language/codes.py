"""Language codes a caller gives: `lang="de-AT"`, `lang_guess="en_US.UTF-8"`."""

import re
from typing import Final

from drut.errors import InvalidTypeError

ENGLISH: Final = frozenset({"en", "eng", "english"})
# Codes and locales that name no language: undetermined, no linguistic content, several, POSIX.
UNSPECIFIED: Final = frozenset({"", "c", "posix", "und", "zxx", "mul"})

_SUBTAG_END: Final = re.compile(r"[-_.@]")


def primary_subtag(code: object) -> str | None:
    """The language a code names, in lower case, or None where it names none.

    Raises:
        InvalidTypeError: the code is neither a string nor None.
    """
    if code is None:
        return None
    if not isinstance(code, str):
        raise InvalidTypeError(
            f'a language is given as a code such as "en" or "de-AT", got {type(code).__name__}; '
            "leave it out (None) to let the text decide"
        )
    subtag = _SUBTAG_END.split(code.strip().lower(), maxsplit=1)[0].strip()
    return None if subtag in UNSPECIFIED else subtag


def names_english(code: object) -> bool | None:
    """Whether a code names English; None where it names no language.

    Raises:
        InvalidTypeError: the code is neither a string nor None.
    """
    subtag = primary_subtag(code)
    return None if subtag is None else subtag in ENGLISH
