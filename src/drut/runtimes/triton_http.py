"""Triton over HTTP: the v2 protocol with its binary tensors."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from drut.errors import MissingDependencyError
from drut.runtimes.triton_errors import http_failure, incomplete
from drut.runtimes.triton_options import Address, Headers, TlsOptions, checked_headers
from drut.runtimes.triton_pool import HttpPool, Reply, Request
from drut.runtimes.triton_transport import Answered, Inference, ModelRef, Output, microseconds

try:
    # Only its encoding of messages: its client belongs to one thread, hangs in others, and bounds
    # each read instead of the whole request (docs/decisions/0014).
    from tritonclient.http import (
        InferenceServerClient,
        InferInput,
        InferRequestedOutput,
        InferResult,
    )
    from tritonclient.utils import np_to_triton_dtype
except ImportError as exc:  # pragma: no cover - tried by the packaging test
    raise MissingDependencyError("tritonclient is not installed; install drut[triton]") from exc

T = TypeVar("T", bound=dict[str, Any] | list[Any])

_HEADER_LENGTH = "Inference-Header-Content-Length"


class HttpTransport:
    """Speaks v2 over HTTP/1.1."""

    def __init__(self, address: Address, headers: Headers | None, tls: TlsOptions | None) -> None:
        self.url = str(address)
        self._base = f"{address.path}/v2"
        self._headers = headers
        self._pool = HttpPool(address, tls)

    def server(self, seconds: float) -> Mapping[str, Any]:
        return self._json(self._send("GET", "", seconds), dict)

    def ready(self, model: ModelRef, seconds: float) -> bool:
        reply = self._send("GET", f"{_path(model)}/ready", seconds)
        if reply.status in (400, 404):
            return False  # 400 is how Triton says "not ready"
        self._succeeded(reply)
        return True

    def metadata(self, model: ModelRef, seconds: float) -> Mapping[str, Any]:
        return self._json(self._send("GET", _path(model), seconds), dict)

    def config(self, model: ModelRef, seconds: float) -> Mapping[str, Any]:
        return self._json(self._send("GET", f"{_path(model)}/config", seconds), dict)

    def index(self, seconds: float) -> list[Mapping[str, Any]]:
        return self._json(self._send("POST", "/repository/index", seconds, b"{}"), list)

    def load(self, name: str, seconds: float) -> None:
        self._succeeded(
            self._send("POST", f"/repository/models/{quote(name, safe='')}/load", seconds, b"{}")
        )

    def unload(self, name: str, seconds: float) -> None:
        self._succeeded(
            self._send("POST", f"/repository/models/{quote(name, safe='')}/unload", seconds, b"{}")
        )

    def infer(self, request: Inference, seconds: float) -> Answered:
        body, json_size = InferenceServerClient.generate_request_body(
            [_input(name, values) for name, values in request.inputs.items()],
            outputs=[InferRequestedOutput(name, binary_data=True) for name in request.outputs],
            request_id=request.id,
            timeout=microseconds(seconds),
        )
        headers = {
            "content-type": "application/octet-stream",
            _HEADER_LENGTH.lower(): str(json_size),
        }
        path = f"{_path(request.model)}/infer"
        reply = self._succeeded(self._send("POST", path, seconds, body, headers))
        try:
            return _answered(reply, request)
        except Exception as exc:
            # Whatever the decoder stumbles over, the answer is not one.
            raise incomplete(self.url, f"{type(exc).__name__}: {exc}") from exc

    def close(self) -> None:
        self._pool.close()

    def _send(
        self,
        method: str,
        path: str,
        seconds: float,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = {**checked_headers(self._headers), **(headers or {})}
        return self._pool.send(Request(method, f"{self._base}{path}", sent, body), seconds)

    def _succeeded(self, reply: Reply) -> Reply:
        if reply.status != 200:
            raise http_failure(self.url, reply.status, reply.body)
        if reply.headers.get("Content-Encoding", "identity") != "identity":
            raise incomplete(self.url, "it is compressed, which was not asked for")
        return reply

    def _json(self, reply: Reply, kind: type[T]) -> T:
        try:
            value = json.loads(self._succeeded(reply).body)
        except (ValueError, RecursionError) as exc:
            raise incomplete(self.url, f"it is not JSON ({exc})") from exc
        if not isinstance(value, kind):
            raise incomplete(self.url, f"it is a JSON {type(value).__name__}, not {kind.__name__}")
        return value


def _path(model: ModelRef) -> str:
    version = "" if model.version is None else f"/versions/{model.version}"
    return f"/models/{quote(model.name, safe='')}{version}"


def _input(name: str, values: Any) -> InferInput:
    tensor = InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
    tensor.set_data_from_numpy(values, binary_data=True)
    return tensor


def _answered(reply: Reply, request: Inference) -> Answered:
    length = reply.headers.get(_HEADER_LENGTH)
    result = InferResult.from_response_body(
        reply.body, header_length=None if length is None else int(length)
    )
    told = result.get_response()
    described = {each["name"]: each for each in told.get("outputs", ())}
    outputs = {
        name: Output(described[name]["datatype"], result.as_numpy(name))
        if name in described
        else None
        for name in request.outputs
    }
    return Answered(str(told.get("id", "")), str(told.get("model_version", "")), outputs)
