"""What `TritonRuntime` needs of a protocol: the calls of the v2 inference protocol it makes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.generic]


class ModelRef(NamedTuple):
    """A model on a server; without a version the server chooses one."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        version = "" if self.version is None else f" version {self.version}"
        return f"{self.name!r}{version}"

    @property
    def version_text(self) -> str:
        """The version as both protocols write it; empty: the server's choice."""
        return "" if self.version is None else str(self.version)


@dataclass(frozen=True, slots=True)
class Inference:
    """One request to a model."""

    model: ModelRef
    id: str
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...]


class Output(NamedTuple):
    """One tensor of an answer."""

    datatype: str  # as the protocol names it, e.g. FP32
    values: Array


@dataclass(frozen=True, slots=True)
class Answered:
    """What a server answered, as it stands: nothing of it is checked but its form."""

    id: str
    version: str
    outputs: Mapping[str, Output | None]  # of every requested name; None: it is not there


class Transport(Protocol):
    """One protocol to one server. Safe to use from many threads.

    Every call takes the seconds it may last, makes one attempt, and raises `AttemptError`.
    """

    @property
    def url(self) -> str:
        """The server's address, for messages."""
        ...

    def server(self, seconds: float) -> Mapping[str, Any]:
        """Name, version and extensions of the server."""
        ...

    def ready(self, model: ModelRef, seconds: float) -> bool:
        """Whether the server answers for the model now."""
        ...

    def metadata(self, model: ModelRef, seconds: float) -> Mapping[str, Any]:
        """Names, dtypes and shapes of a model's tensors."""
        ...

    def config(self, model: ModelRef, seconds: float) -> Mapping[str, Any]:
        """The configuration the model was loaded with."""
        ...

    def index(self, seconds: float) -> list[Mapping[str, Any]]:
        """Every model version the server knows, with its state."""
        ...

    def load(self, name: str, seconds: float) -> None:
        """Load a model, where the server lets clients do that; returns when it is ready."""
        ...

    def unload(self, name: str, seconds: float) -> None:
        """Unload a model; returns when that has begun."""
        ...

    def infer(self, request: Inference, seconds: float) -> Answered:
        """Run a model."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


def microseconds(seconds: float) -> int:
    """The time a request may wait in the server's queue, as the protocol wants it."""
    return max(1, int(seconds * 1_000_000))
