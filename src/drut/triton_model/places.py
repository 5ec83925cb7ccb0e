"""How many requests a decision model holds at most."""

import threading

from drut.errors import OverloadedError


class Places:
    """Counts the requests that have been taken and not answered, up to a bound. Thread-safe."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._taken = 0
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a place if there is one."""
        with self._lock:
            free = self._taken < self._bound
            self._taken += free
        return free

    def give_back(self) -> None:
        """Free a place."""
        with self._lock:
            self._taken -= 1

    @property
    def taken(self) -> int:
        """Places that are taken at this moment."""
        return self._taken

    def overloaded(self) -> OverloadedError:
        """What a request hears that finds none."""
        return OverloadedError(
            f"the maximum queue size of {self._bound} requests is reached; ask again later, or "
            "raise the parameter max_queue of the decision model"
        )
