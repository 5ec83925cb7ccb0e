"""Does the server answer, and are its models ready? Needs Python alone.

    python3 health.py http://127.0.0.1:8000 [MODEL ...]

Without names every model counts that the server was told to load. The exit code is 0 where all
of them are ready, 2 where the command is wrong, else 1 with the reasons on standard error.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence

SECONDS = 8.0
"""For everything; the image's HEALTHCHECK grants more."""

# A proxy of the environment is for the world outside, not for this container.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Server:
    """Asks one server, for so many seconds in total."""

    def __init__(self, url: str, seconds: float = SECONDS) -> None:
        self._url = url
        self._until = time.monotonic() + seconds

    def faults(self, models: Sequence[str]) -> list[str]:
        """What is wrong, in words; nothing where all is well."""
        try:
            self._ask("health/live")
            names = models or self._loaded()
        except (OSError, ValueError) as exc:
            return [f"{self._url} does not answer: {exc}; see the server's log"]
        if not names:
            return [f"{self._url} has no model; is --model-repository right?"]
        return [fault for name in names if (fault := self._fault(name))]

    def _loaded(self) -> list[str]:
        index = json.loads(self._ask("repository/index", b"{}"))
        return sorted({each["name"] for each in index if _counts(each)})

    def _fault(self, model: str) -> str | None:
        try:
            self._ask(f"models/{model}/ready")
        except (OSError, ValueError) as exc:
            return f"{model} is not ready: {exc}; see the server's log"
        return None

    def _ask(self, path: str, body: bytes | None = None) -> bytes:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no time is left of {SECONDS:g} seconds")
        # An idle connection would hold up the server's exit.
        request = urllib.request.Request(
            f"{self._url}/v2/{path}", data=body, headers={"Connection": "close"}
        )
        with _OPENER.open(request, timeout=left) as answer:
            return bytes(answer.read())


def _counts(told: Mapping[str, str]) -> bool:
    """Whether a model is meant to be ready: not one that nobody loaded, or somebody unloaded."""
    state = told.get("state", "")
    return state not in ("", "UNLOADING") and told.get("reason") != "unloaded"


def main(arguments: Sequence[str]) -> int:
    """Check, and tell what is wrong. Returns the exit code."""
    if not arguments or not arguments[0].startswith(("http://", "https://")):
        sys.stderr.write("usage: health.py http://HOST:8000 [MODEL ...]\n")
        return 2
    found = Server(arguments[0].rstrip("/")).faults(arguments[1:])
    sys.stderr.writelines(f"{each}\n" for each in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
