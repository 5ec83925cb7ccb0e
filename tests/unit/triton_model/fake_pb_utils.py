"""What Triton's Python backend gives a model, as far as drut's model uses it."""

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

TRITONSERVER_MEMORY_CPU = 0
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1


class TritonModelException(Exception):
    pass


class TritonError:
    INTERNAL, NOT_FOUND, INVALID_ARG, UNAVAILABLE, CANCELLED = 1, 2, 3, 4, 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        self._message, self._code = message, code

    def message(self) -> str:
        return self._message

    def code(self) -> int:
        return self._code


class Tensor:
    def __init__(self, name: str, array: np.ndarray) -> None:
        self.name, self.array = name, array

    def as_numpy(self) -> np.ndarray:
        return self.array


class InferenceResponse:
    def __init__(self, tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self.tensors, self._error = tensors, error

    def has_error(self) -> bool:
        return self._error is not None

    def error(self) -> TritonError | None:
        return self._error


class Sender:
    """Takes the one response of a request; what else is asked of it would end the real server."""

    def __init__(self, cancelled: bool) -> None:
        self.cancelled = cancelled
        self.responses: queue.SimpleQueue[InferenceResponse] = queue.SimpleQueue()
        self.closed = False

    def is_cancelled(self) -> bool:
        assert not self.closed
        return self.cancelled

    def send(self, response: InferenceResponse, flags: int = 0) -> None:
        assert not self.closed
        assert flags == TRITONSERVER_RESPONSE_COMPLETE_FINAL
        self.closed = True
        self.responses.put(response)


@dataclass
class Request:
    """A request to the decision model."""

    tensors: Sequence[Tensor]
    microseconds: int = 0
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.sender = Sender(self.cancelled)

    def timeout(self) -> int:
        return self.microseconds

    def get_response_sender(self) -> Sender:
        return self.sender


@dataclass
class InferenceRequest:
    """A request of the decision model to another one; `server` answers it."""

    model_name: str
    model_version: int
    inputs: Sequence[Tensor]
    requested_output_names: Sequence[str]
    timeout: int
    preferred_memory: Any
    server: Callable[["InferenceRequest"], InferenceResponse] = field(
        default=lambda request: SERVER.answer(request), repr=False
    )

    async def async_exec(self) -> InferenceResponse:
        return self.server(self)

    def exec(self) -> InferenceResponse:
        return self.server(self)


@dataclass
class PreferredMemory:
    kind: int
    device: int


def get_input_tensor_by_name(request: Request, name: str) -> Tensor | None:
    return next((each for each in request.tensors if each.name == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    return next((each for each in response.tensors if each.name == name), None)


class MetricFamily:
    GAUGE = "gauge"
    told: dict[str, float] = {}  # noqa: RUF012 - of the process, by model
    broken = False

    def __init__(self, *, name: str, description: str, kind: str) -> None:
        if self.broken:
            raise TritonModelException("metrics are off")
        assert (name, kind) == ("drut_open_requests", self.GAUGE)

    def Metric(self, *, labels: dict[str, str]) -> Any:
        return SimpleNamespace(set=lambda value: self.told.update({labels["model"]: value}))


class Logger:
    lines: list[str] = []  # noqa: RUF012 - of the process, as in the backend

    @staticmethod
    def log_warn(line: str) -> None:
        Logger.lines.append(line)

    @staticmethod
    def log_error(line: str) -> None:
        Logger.lines.append(line)


SERVER = SimpleNamespace(answer=None)
