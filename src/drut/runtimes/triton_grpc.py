"""Triton over gRPC: one channel, shared by all threads."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from drut.errors import MissingDependencyError
from drut.runtimes.triton_errors import grpc_failure, incomplete
from drut.runtimes.triton_options import Address, Headers, TlsOptions, checked_headers
from drut.runtimes.triton_transport import Answered, Inference, ModelRef, Output, microseconds

try:
    from tritonclient.grpc import (
        InferenceServerClient,
        InferInput,
        InferRequestedOutput,
    )
    from tritonclient.utils import InferenceServerException, np_to_triton_dtype
except ImportError as exc:  # pragma: no cover - tried by the packaging test
    raise MissingDependencyError("tritonclient is not installed; install drut[triton]") from exc

T = TypeVar("T")

_LONGEST: Final = (1 << 31) - 1
_CHANNEL: Final = (
    ("grpc.max_send_message_length", _LONGEST),
    ("grpc.max_receive_message_length", _LONGEST),
    # Attempts are counted in one place, and that is not in here.
    ("grpc.enable_retries", 0),
    # While the channel waits to connect again every call fails at once: after a restart of the
    # server that must be over before our own last attempt.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 250),
    # Proxies of the environment are not for a server named by its address; HTTP takes none either.
    ("grpc.enable_http_proxy", 0),
    # A channel of its own connection: closing one agent must not touch another's.
    ("grpc.use_local_subchannel_pool", 1),
)


class GrpcTransport:
    """Speaks v2 over gRPC."""

    def __init__(self, address: Address, headers: Headers | None, tls: TlsOptions | None) -> None:
        self.url = str(address)
        self._headers = headers
        tls = tls or TlsOptions()
        for path in (tls.ca, tls.key, tls.certificate):
            if path is not None:
                Path(path).stat()  # a missing file is told by its name
        self._client: Any = InferenceServerClient(
            address.authority,
            ssl=address.secure,
            root_certificates=tls.ca,
            private_key=tls.key,
            certificate_chain=tls.certificate,
            channel_args=list(_CHANNEL),
        )

    def server(self, seconds: float) -> Mapping[str, Any]:
        return self._mapping(self._client.get_server_metadata, seconds, as_json=True)

    def ready(self, model: ModelRef, seconds: float) -> bool:
        ready = self._client.is_model_ready
        return bool(self._call(ready, seconds, model.name, model.version_text))

    def metadata(self, model: ModelRef, seconds: float) -> Mapping[str, Any]:
        asked = (model.name, model.version_text)
        return self._mapping(self._client.get_model_metadata, seconds, *asked, as_json=True)

    def config(self, model: ModelRef, seconds: float) -> Mapping[str, Any]:
        asked = (model.name, model.version_text)
        told = self._mapping(self._client.get_model_config, seconds, *asked, as_json=True)
        config: Mapping[str, Any] = told.get("config", {})
        return config

    def index(self, seconds: float) -> list[Mapping[str, Any]]:
        told = self._mapping(self._client.get_model_repository_index, seconds, as_json=True)
        models: list[Mapping[str, Any]] = told.get("models", [])
        return models

    def load(self, name: str, seconds: float) -> None:
        self._call(self._client.load_model, seconds, name)

    def unload(self, name: str, seconds: float) -> None:
        self._call(self._client.unload_model, seconds, name)

    def infer(self, request: Inference, seconds: float) -> Answered:
        inputs = []
        for name, values in request.inputs.items():
            tensor = InferInput(name, list(values.shape), np_to_triton_dtype(values.dtype))
            tensor.set_data_from_numpy(values)
            inputs.append(tensor)
        result = self._call(
            self._client.infer,
            seconds,
            request.model.name,
            inputs,
            model_version=request.model.version_text,
            outputs=[InferRequestedOutput(name) for name in request.outputs],
            request_id=request.id,
            timeout=microseconds(seconds),
        )
        try:
            return _answered(result, request)
        except Exception as exc:
            # Whatever the decoder stumbles over, the answer is not one.
            raise incomplete(self.url, f"{type(exc).__name__}: {exc}") from exc

    def close(self) -> None:
        self._client.close()

    def _mapping(
        self, method: Callable[..., Any], seconds: float, *args: Any, **options: Any
    ) -> Mapping[str, Any]:
        told: Mapping[str, Any] = self._call(method, seconds, *args, **options)
        return told

    def _call(self, method: Callable[..., T], seconds: float, *args: Any, **options: Any) -> T:
        headers = checked_headers(self._headers)
        try:
            return method(*args, headers=headers, client_timeout=seconds, **options)
        except InferenceServerException as exc:
            raise grpc_failure(self.url, exc.status(), exc.message()) from exc
        except ValueError as exc:
            # How gRPC says that the channel was closed while the call was on its way.
            raise grpc_failure(self.url, "StatusCode.CANCELLED", str(exc)) from exc


def _answered(result: Any, request: Inference) -> Answered:
    told = result.get_response()
    described = {each.name: each.datatype for each in told.outputs}
    outputs = {
        name: Output(described[name], result.as_numpy(name)) if name in described else None
        for name in request.outputs
    }
    return Answered(told.id, told.model_version, outputs)
