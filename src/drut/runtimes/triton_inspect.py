"""What a Triton server says about itself, for a report."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drut.errors import ForwardError, RuntimeUnavailableError
from drut.runtimes.triton import open_transport
from drut.runtimes.triton_errors import persist
from drut.runtimes.triton_options import TritonOptions, parse_url


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One version of a model that a server knows."""

    name: str
    version: str
    state: str  # READY, UNAVAILABLE, ...; empty: it was never loaded
    reason: str = ""  # why it is not ready


@dataclass(frozen=True, slots=True)
class ServerReport:
    """A server that answers."""

    url: str
    version: str
    extensions: tuple[str, ...]
    models: tuple[ServedModel, ...]


def inspect_server(options: TritonOptions) -> ServerReport:
    """Ask a server what it is and what it has.

    Raises:
        InvalidRequestError: the address or an option cannot be used.
        RuntimeUnavailableError: nobody answers, or not in this protocol.
    """
    address = parse_url(options.url)
    transport = open_transport(address, options)
    until, never = time.monotonic() + options.timeout, threading.Event()
    try:
        told = persist(transport.server, until, never)
        index = persist(transport.index, until, never)
    except ForwardError as exc:
        raise RuntimeUnavailableError(str(exc)) from exc
    finally:
        transport.close()
    return ServerReport(
        str(address),
        str(told.get("version", "unknown")),
        tuple(map(str, told.get("extensions") or ())),
        tuple(map(_model, index)),
    )


def _model(told: Mapping[str, Any]) -> ServedModel:
    return ServedModel(
        *(str(told.get(name, "")) for name in ("name", "version", "state", "reason"))
    )
