"""The contract between a pipeline, which has rows, and whatever decides which pass they run in."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from drut.tensors import EncodedRow, Logits


@runtime_checkable
class RowRunner(Protocol):
    """Turns encoded rows into logits, in as many forward passes as it sees fit.

    `run` is called from many threads at once.
    """

    def run(self, rows: Sequence[EncodedRow]) -> Logits:
        """Logits of every row, in the rows' order.

        Returns:
            `options` is [rows, widest row], with `MASKED_LOGIT` beyond a row's own options.

        Raises:
            ForwardError: a pass failed; no other call's rows are lost by it.
        """
        ...

    def statistics(self) -> dict[str, Any]:
        """What was run so far, as plain numbers by name."""
        ...

    def close(self) -> None:
        """End workers and close the runtime; rows still waiting fail with `RuntimeClosedError`."""
        ...
