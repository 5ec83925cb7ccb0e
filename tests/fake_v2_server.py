"""A server of the v2 inference protocol that misbehaves on demand, over HTTP and over gRPC.

    with fake_v2_server() as server:
        server.script += [status(503, "busy"), missing("logits")]   # the next two inferences
        ...                                                          # later ones are answered
        assert server.inferences == 3

It listens on 127.0.0.1. Its one model answers with a function of the inputs, so that a test can
tell whose answer it got.
"""

import json
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import numpy as np
import trustme
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

from drut.tensors import MASKED_LOGIT, Batch, Logits

Tensors = dict[str, tuple[str, np.ndarray]]  # name to datatype and values

NUMPY = {"INT64": np.int64, "BOOL": np.bool_, "FP32": np.float32, "FP16": np.float16}
GRPC_OF = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.NOT_FOUND,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
}


def expected_logits(batch: Batch) -> Logits:
    """What the model answers: slot plus the sum of the row's tokens, and that sum twice."""
    total = (batch.input_ids * batch.attention_mask).sum(axis=1, keepdims=True).astype(np.float32)
    slots = np.arange(batch.marker_mask.shape[1], dtype=np.float32)
    options = np.where(batch.marker_mask, slots + total, np.float32(MASKED_LOGIT))
    return Logits(options, np.concatenate((total, -total), axis=1))


@dataclass(frozen=True)
class Act:
    """What happens to one inference instead of a plain answer."""

    wait: float = 0.0  # seconds before it
    status: tuple[int, str] | None = None
    change: Callable[[Tensors], Tensors] | None = None  # of the outputs
    header: Mapping[str, Any] = field(default_factory=dict)  # entries of the answer's JSON
    raw: Callable[["Handler", bytes, bytes], None] | None = None  # HTTP: sends the response itself


def status(code: int, message: str = "an error") -> Act:
    return Act(status=(code, message))


def slow(seconds: float) -> Act:
    return Act(wait=seconds)


def missing(*names: str) -> Act:
    return Act(
        change=lambda outputs: {name: each for name, each in outputs.items() if name not in names}
    )


def altered(name: str, change: Callable[[np.ndarray], np.ndarray], datatype: str = "FP32") -> Act:
    """Another shape or datatype of one output, told truthfully."""
    return Act(change=lambda outputs: {**outputs, name: (datatype, change(outputs[name][1]))})


def raw(send: Callable[["Handler", bytes, bytes], None]) -> Act:
    return Act(raw=send)


class FakeV2Server:
    """The state of the fake: its model, its script, and what it was asked."""

    def __init__(self) -> None:
        self.name = "tiny"
        self.answer: Callable[[Batch], Logits] = expected_logits
        self.versions = ["1"]
        self.answering_version = "1"
        self.metadata: dict[str, Any] = {
            "platform": "onnxruntime_onnx",
            "inputs": [
                _tensor("input_ids", "INT64", [-1, -1]),
                _tensor("attention_mask", "INT64", [-1, -1]),
                _tensor("marker_pos", "INT64", [-1, -1]),
                _tensor("marker_mask", "BOOL", [-1, -1]),
                _tensor("qtype", "INT64", [-1, 1]),
            ],
            "outputs": [
                _tensor("logits", "FP32", [-1, -1]),
                _tensor("act_logits", "FP32", [-1, 2]),
            ],
        }
        self.config: dict[str, Any] = {
            "max_batch_size": 8,
            "instance_group": [{"name": "tiny_0", "kind": "KIND_CPU", "count": 1}],
            "parameters": {},
        }
        self.loaded = True
        self.may_load = True
        self.script: deque[Act] = deque()
        self.asked: list[dict[str, Any]] = []  # the parameters and rows of every inference
        self.controls: list[str] = []  # load and unload, in order
        self.headers: list[dict[str, str]] = []  # of every request
        self.connections = 0
        self.http_port = self.grpc_port = 0
        self.scheme = ""  # what follows http and grpc
        self.lock = threading.Lock()

    @property
    def http(self) -> str:
        return f"http{self.scheme}://127.0.0.1:{self.http_port}"

    @property
    def grpc(self) -> str:
        return f"grpc{self.scheme}://127.0.0.1:{self.grpc_port}"

    def url(self, protocol: str) -> str:
        return self.http if protocol == "http" else self.grpc

    @property
    def inferences(self) -> int:
        """How many inferences were asked for, answered or not."""
        return len(self.asked)

    def next_act(self, parameters: dict[str, Any], rows: int) -> Act:
        with self.lock:
            self.asked.append({**parameters, "rows": rows})
            act = self.script.popleft() if self.script else Act()
        time.sleep(act.wait)
        return act

    def outputs(self, inputs: Mapping[str, np.ndarray], act: Act) -> Tensors:
        assert inputs["qtype"].shape == (len(inputs["input_ids"]), 1)
        made = self.answer(Batch(**{**inputs, "qtype": inputs["qtype"][:, 0]}))
        outputs: Tensors = {
            "logits": ("FP32", made.options.astype(np.float32)),
            "act_logits": ("FP32", made.actions.astype(np.float32)),
        }
        return act.change(outputs) if act.change else outputs

    def index(self) -> list[dict[str, str]]:
        state = "READY" if self.loaded else "UNAVAILABLE"
        return [{"name": self.name, "version": each, "state": state} for each in self.versions]

    def control(self, what: str, name: str) -> tuple[int, str] | None:
        """Load or unload; the error where that is not possible."""
        with self.lock:
            self.controls.append(f"{what} {name}")
            if not self.may_load:
                return 503, "explicit model load / unload is not allowed"
            if name != self.name:
                return 500, f"failed to load '{name}', failed to poll from model repository"
            self.loaded = what == "load"
        return None

    def serves(self, name: str, version: str) -> bool:
        return self.loaded and name == self.name and (not version or version in self.versions)


def _tensor(name: str, datatype: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape}


class Handler(BaseHTTPRequestHandler):
    """HTTP/1.1 with keep-alive."""

    protocol_version = "HTTP/1.1"
    server: "_HttpServer"

    def setup(self) -> None:
        super().setup()
        with self.server.state.lock:
            self.server.state.connections += 1
            self.server.open.append(self.connection)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._note()
        state, parts = self.server.state, self.path.strip("/").split("/")
        if parts == ["v2"]:
            return self.send_json({"name": "fake", "version": "0.0", "extensions": []})
        name = parts[2]
        version = parts[4] if parts[3:4] == ["versions"] else ""
        rest = parts[5:] if version else parts[3:]
        if not state.serves(name, version):
            code = 400 if rest == ["ready"] else 404
            return self.send_json({"error": f"Request for unknown model: '{name}'"}, code)
        if rest == ["ready"]:
            return self.send_json({})
        if rest == ["config"]:
            return self.send_json({"name": name, **state.config})
        return self.send_json({"name": name, "versions": state.versions, **state.metadata})

    def do_POST(self) -> None:
        self._note()
        state, parts = self.server.state, self.path.strip("/").split("/")
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if parts[1] == "repository":
            if parts[2] == "index":
                return self.send_json(state.index())
            fault = state.control(parts[4], parts[3])
            return self.send_json({"error": fault[1]}, fault[0]) if fault else self.send_json({})
        length = int(self.headers["inference-header-content-length"])
        asked = json.loads(body[:length])
        inputs = _read_inputs(asked, body[length:])
        act = state.next_act(
            {"headers": dict(self.headers), "id": asked["id"], **asked.get("parameters", {})},
            len(inputs["input_ids"]),
        )
        version = parts[4] if parts[3] == "versions" else ""
        if not state.serves(parts[2], version):
            return self.send_json({"error": f"Request for unknown model: '{parts[2]}'"}, 404)
        if act.status is not None:
            return self.send_json({"error": act.status[1]}, act.status[0])
        head, binary = self._answer(asked, inputs, act)
        if act.raw is not None:
            self.close_connection = True
            return act.raw(self, head, binary)
        self.send_binary(head, binary)
        return None

    def _answer(
        self, asked: dict[str, Any], inputs: Mapping[str, np.ndarray], act: Act
    ) -> tuple[bytes, bytes]:
        outputs = self.server.state.outputs(inputs, act)
        told = [
            {
                "name": name,
                "datatype": datatype,
                "shape": list(values.shape),
                "parameters": {"binary_data_size": values.nbytes},
            }
            for name, (datatype, values) in outputs.items()
        ]
        head = {
            "id": asked["id"],
            "model_name": self.server.state.name,
            "model_version": self.server.state.answering_version,
            "outputs": told,
            **act.header,
        }
        return json.dumps(head).encode(), b"".join(v.tobytes() for _, v in outputs.values())

    def send_binary(self, head: bytes, binary: bytes, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(head) + len(binary)))
        self.send_header("Inference-Header-Content-Length", str(len(head)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(head + binary)

    def send_json(self, value: Any, code: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def reset(self) -> None:
        """End the connection as a crash does: with RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def _note(self) -> None:
        with self.server.state.lock:
            self.server.state.headers.append({k.lower(): v for k, v in self.headers.items()})


class _HttpServer(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, state: FakeV2Server, port: int = 0) -> None:
        self.state = state
        self.open: list[socket.socket] = []  # every connection that was accepted
        super().__init__(("127.0.0.1", port), Handler)

    def close_all(self) -> None:
        """End as a process does: with its connections."""
        for connection in self.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what half of the tests are about."""

    def shutdown_request(self, request: Any) -> None:
        try:
            super().shutdown_request(request)
        except OSError:
            request.close()


def _read_inputs(asked: dict[str, Any], binary: bytes) -> dict[str, np.ndarray]:
    inputs, offset = {}, 0
    for each in asked["inputs"]:
        size = each["parameters"]["binary_data_size"]
        values = np.frombuffer(binary[offset : offset + size], NUMPY[each["datatype"]])
        inputs[each["name"]] = values.reshape(each["shape"])
        offset += size
    assert offset == len(binary)
    return inputs


class _Grpc(service_pb2_grpc.GRPCInferenceServiceServicer):
    def __init__(self, state: FakeV2Server) -> None:
        self.state = state

    def ServerMetadata(self, request: Any, context: Any) -> Any:
        self._note(context)
        return service_pb2.ServerMetadataResponse(name="fake", version="0.0")

    def ModelReady(self, request: Any, context: Any) -> Any:
        self._note(context)
        ready = self.state.serves(request.name, request.version)
        return service_pb2.ModelReadyResponse(ready=ready)

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        self._require(request.name, request.version, context)
        told = deepcopy(self.state.metadata)
        kind = service_pb2.ModelMetadataResponse
        return kind(
            name=request.name,
            versions=self.state.versions,
            platform=told["platform"],
            inputs=[kind.TensorMetadata(**each) for each in told["inputs"]],
            outputs=[kind.TensorMetadata(**each) for each in told["outputs"]],
        )

    def ModelConfig(self, request: Any, context: Any) -> Any:
        from google.protobuf.json_format import ParseDict

        self._require(request.name, request.version, context)
        config = ParseDict(self.state.config, model_config_pb2.ModelConfig())
        return service_pb2.ModelConfigResponse(config=config)

    def RepositoryIndex(self, request: Any, context: Any) -> Any:
        kind = service_pb2.RepositoryIndexResponse
        return kind(models=[kind.ModelIndex(**each) for each in self.state.index()])

    def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        self._control("load", request.model_name, context)
        return service_pb2.RepositoryModelLoadResponse()

    def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        self._control("unload", request.model_name, context)
        return service_pb2.RepositoryModelUnloadResponse()

    def ModelInfer(self, request: Any, context: Any) -> Any:
        self._note(context)
        inputs = {
            told.name: np.frombuffer(content, NUMPY[told.datatype]).reshape(tuple(told.shape))
            for told, content in zip(request.inputs, request.raw_input_contents, strict=True)
        }
        parameters = {name: each.int64_param for name, each in request.parameters.items()}
        act = self.state.next_act(
            {"id": request.id, **parameters, "left": context.time_remaining()},
            len(inputs["input_ids"]),
        )
        self._require(request.model_name, request.model_version, context)
        if act.status is not None:
            context.abort(GRPC_OF[act.status[0]], act.status[1])
        outputs = self.state.outputs(inputs, act)
        kind = service_pb2.ModelInferResponse
        answer = kind(
            id=act.header.get("id", request.id),
            model_name=request.model_name,
            model_version=act.header.get("model_version", self.state.answering_version),
            outputs=[
                kind.InferOutputTensor(name=name, datatype=datatype, shape=values.shape)
                for name, (datatype, values) in outputs.items()
            ],
        )
        answer.raw_output_contents.extend(values.tobytes() for _, values in outputs.values())
        return answer

    def _require(self, name: str, version: str, context: Any) -> None:
        if not self.state.serves(name, version):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: '{name}'")

    def _control(self, what: str, name: str, context: Any) -> None:
        fault = self.state.control(what, name)
        if fault is not None:
            context.abort(GRPC_OF[fault[0]], fault[1])

    def _note(self, context: Any) -> None:
        with self.state.lock:
            self.state.headers.append(dict(context.invocation_metadata()))


@contextmanager
def fake_v2_server(
    tls: trustme.LeafCert | None = None, ports: tuple[int, int] = (0, 0)
) -> Iterator[FakeV2Server]:
    """A fake that answers on both protocols until the block ends.

    Args:
        tls: certificate to answer over TLS with.
        ports: of HTTP and of gRPC; 0: any free one.
    """
    state = FakeV2Server()
    web = _HttpServer(state, ports[0])
    credentials = None
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.configure_cert(context)
        web.socket = context.wrap_socket(
            web.socket, server_side=True, do_handshake_on_connect=False
        )
        chain = b"".join(blob.bytes() for blob in tls.cert_chain_pems)
        credentials = grpc.ssl_server_credentials([(tls.private_key_pem.bytes(), chain)])
        state.scheme = "s"
    thread = threading.Thread(target=web.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    rpc = grpc.server(futures.ThreadPoolExecutor(40))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(_Grpc(state), rpc)
    state.grpc_port = (
        rpc.add_insecure_port(f"127.0.0.1:{ports[1]}")
        if credentials is None
        else rpc.add_secure_port(f"127.0.0.1:{ports[1]}", credentials)
    )
    state.http_port = web.server_address[1]
    rpc.start()
    try:
        yield state
    finally:
        rpc.stop(0).wait()
        web.shutdown()
        web.close_all()
        thread.join()
