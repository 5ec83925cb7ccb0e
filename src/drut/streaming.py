"""Answers to more states than fit into memory, a window of them at a time."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final

from drut.errors import InvalidTypeError
from drut.pipeline import whole_number
from drut.schema import Prediction

DEFAULT_WINDOW: Final = 1024
"""States read, answered and handed out together."""


class AnswersStreams:
    """Adds `predict_stream` to whatever has `predict_batch`."""

    def predict_stream(
        self,
        items: Iterable[Any],
        *arguments: Any,
        window: int = DEFAULT_WINDOW,
        **options: Any,
    ) -> Iterator[Prediction]:
        """Answer states from any iterable, in order, without ever holding more than a window.

        Every window is one call of `predict_batch`, with its own start and end hooks. Nothing is
        read before the first answer is asked for, and no window before the one in front of it has
        been handed out. If the iterable fails, what it had yielded is answered first.

        Args:
            items: states; for a Router, requests.
            arguments: further positional arguments of `predict_batch`, such as the questions.
            window: items read at a time.
            options: further arguments of `predict_batch`.

        Raises:
            InvalidRequestError: as `predict_batch` does, with the first answer of a window.
        """
        size = whole_number("window", window, least=1)
        if isinstance(items, str | bytes | bytearray | dict) or not isinstance(items, Iterable):
            raise InvalidTypeError(
                f"predict_stream takes an iterable of states, got one {type(items).__name__}"
            )
        return self._windows(iter(items), size, arguments, options)

    def _windows(
        self, source: Iterator[Any], size: int, arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> Iterator[Prediction]:
        answer: Any = self.predict_batch  # type: ignore[attr-defined]
        failure: Exception | None = None
        while failure is None:
            read: list[Any] = []
            try:
                read.extend(islice(source, size))
            except Exception as exc:  # noqa: BLE001 - raised below, behind the answers
                failure = exc
            if read:
                yield from answer(read, *arguments, **options)
            elif failure is None:
                return
        raise failure
