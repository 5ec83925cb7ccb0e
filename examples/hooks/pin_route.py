"""Pin: requests of some customers are always answered by a checkpoint of their own."""

from collections.abc import Callable, Mapping
from typing import Any

import drut


class PinRoute(drut.BaseHook):
    """Sends a request to the checkpoint that is pinned for its key, whatever the text says.

    The router has loaded nothing yet, so the checkpoint it would have chosen is never built.
    """

    def __init__(self, key_of: Callable[[Any], Any], pinned: Mapping[Any, str]) -> None:
        self._key_of = key_of
        self._pinned = dict(pinned)

    def on_route(self, ctx: drut.PredictContext) -> None:
        name = self._pinned.get(self._key_of(ctx.states[0]))
        if name is not None and ctx.decision is not None:
            # A new decision: the one that was made stays what it was.
            reason = f"pinned to {name}"
            ctx.decision = {**ctx.decision, "model": name, "reason": reason, "reason_code": "hook"}


def customer_of(state: Any) -> Any:
    """The customer of a state, which is a dict with that key or anything else."""
    return state.get("customer") if isinstance(state, dict) else None


if __name__ == "__main__":
    router = drut.Router(hooks=PinRoute(customer_of, {"acme": "starter"}))
    for state in ({"customer": "acme", "text": "Wo ist mein Paket?"}, "Wo ist mein Paket?"):
        decision = router.route(state)
        print(decision.model, "because", decision.reason)
