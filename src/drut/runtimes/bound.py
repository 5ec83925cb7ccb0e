"""Runs of a session on buffers that stay where they are, as captured CUDA graphs need them.

Knows no engine: it is handed what makes buffers and run options, so that every line runs on a CPU
as well.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, TypeAlias

from numpy.typing import NDArray

Feed: TypeAlias = Mapping[str, NDArray[Any]]

MAX_SHAPES: Final = 64
"""Shapes that get buffers and a graph of their own; the engine never gives a graph back."""

NO_GRAPH: Final = -1


@dataclass(frozen=True, slots=True)
class Engine:
    """What a bound session needs of ONNX Runtime."""

    session: Any
    input_buffer: Callable[[NDArray[Any]], Any]  # on the device, with a copy of these values
    output_buffer: Callable[[tuple[int, ...]], Any]  # float32, on the device
    run_options: Callable[[int], Any]  # for the graph of that number


@dataclass(frozen=True, slots=True)
class _Slot:
    """Buffers of one shape."""

    binding: Any
    inputs: dict[str, Any]
    options: Any


class BoundSession:
    """Runs one pass at a time: two would write into the same buffers.

    Args:
        engine: session and buffers.
        outputs: names of the outputs in order, which are [rows, options] and [rows, actions].
        actions: width of the second.
        max_shapes: shapes with buffers; passes of further shapes run without.
    """

    def __init__(
        self,
        engine: Engine,
        outputs: tuple[str, str],
        *,
        actions: int,
        max_shapes: int = MAX_SHAPES,
    ) -> None:
        self._engine = engine
        self._outputs = outputs
        self._actions = actions
        self._max_shapes = max_shapes
        self._lock = Lock()  # held during a pass
        self._slots: dict[tuple[tuple[int, ...], ...], _Slot] = {}

    @property
    def shapes(self) -> int:
        """Shapes that have buffers."""
        return len(self._slots)

    def run(self, feed: Feed) -> list[NDArray[Any]]:
        """The outputs, as arrays that later passes leave alone."""
        with self._lock:
            slot = self._slot(feed)
            if slot is None:
                plain = self._engine.run_options(NO_GRAPH)
                outputs: list[NDArray[Any]] = self._engine.session.run(
                    list(self._outputs), dict(feed), plain
                )
                return outputs
            for name, values in feed.items():
                slot.inputs[name].update_inplace(values)
            self._engine.session.run_with_iobinding(slot.binding, slot.options)
            return list(slot.binding.copy_outputs_to_cpu())

    def _slot(self, feed: Feed) -> _Slot | None:
        key = tuple(values.shape for values in feed.values())
        slot = self._slots.get(key)
        if slot is None and len(self._slots) < self._max_shapes:
            slot = self._slots[key] = self._made(feed, number=len(self._slots) + 1)
        return slot

    def _made(self, feed: Feed, *, number: int) -> _Slot:
        binding = self._engine.session.io_binding()
        inputs = {name: self._engine.input_buffer(values) for name, values in feed.items()}
        for name, buffer in inputs.items():
            binding.bind_ortvalue_input(name, buffer)
        rows, options = feed["marker_mask"].shape
        shapes = ((rows, options), (rows, self._actions))
        for name, shape in zip(self._outputs, shapes, strict=True):
            binding.bind_ortvalue_output(name, self._engine.output_buffer(shape))
        return _Slot(binding, inputs, self._engine.run_options(number))
