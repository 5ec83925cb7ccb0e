"""The hub's client, with patience for broken connections and manners about progress bars."""

import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ATTEMPTS: Final = 3
BACK_OFF_SECONDS: Final = 1.0
"""Pause before the second attempt; it doubles with every further one."""

BROKEN_CONNECTIONS: Final = frozenset(
    {"ConnectionError", "TransportError", "TimeoutError", "Timeout", "ChunkedEncodingError"}
)
"""Classes that stand for a broken connection in every HTTP library the client has ever used."""


def download_snapshot(
    repository: str, revision: str | None, token: str | None, patterns: Sequence[str]
) -> Path:
    """Download the files of a repository that match, and return the directory they are in.

    After a broken connection it is tried again: files that are complete are not asked for again.

    Raises:
        Exception: whatever the client raises.
    """
    # Imported here: a bundle on disk needs neither the client nor its HTTP stack.
    from huggingface_hub import snapshot_download

    attempt = 1
    while True:
        try:
            return Path(
                snapshot_download(
                    repository,
                    revision=revision,
                    token=token,
                    allow_patterns=list(patterns),
                    tqdm_class=_bar(),
                )
            )
        except Exception as exc:
            # The classes of HTTP errors differ by version; what cannot pass is raised as it is.
            if attempt == ATTEMPTS or not is_broken_connection(exc):
                raise
        time.sleep(BACK_OFF_SECONDS * 2 ** (attempt - 1))
        attempt += 1


def is_broken_connection(exc: BaseException) -> bool:
    """Whether an error, or what caused it, is a connection that may hold the next time."""
    names = {base.__name__ for cause in _causes(exc) for base in type(cause).__mro__}
    return bool(names & BROKEN_CONNECTIONS) and "OfflineModeIsEnabled" not in names


def _causes(exc: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = exc
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__


def _bar() -> Any:
    """The client's progress bar, for a person alone: logs and pipes get none."""
    bar: Any = import_module("huggingface_hub.utils").tqdm

    def start(self: Any, *args: Any, **kwargs: Any) -> None:
        kwargs["disable"] = kwargs.get("disable") or not _is_terminal()
        bar.__init__(self, *args, **kwargs)

    return type("TerminalBar", (bar,), {"__init__": start})


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
