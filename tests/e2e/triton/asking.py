"""Asking a decision model over each protocol, and comparing what it says."""

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpcclient
import tritonclient.http as httpclient

from drut.tensors import Batch
from triton_server import TritonServer

HURRY = {"urgent": {"type": "noul", "instructions": "Is the customer in a hurry?"}}


def texts(state: bytes | str, questions: Any, options: Any = None, *, kind: Any) -> list[Any]:
    """The request's tensors for `tritonclient.grpc` or `tritonclient.http`."""
    given = {"STATE": state, "QUESTIONS": questions}
    if options is not None:
        given["OPTIONS"] = options
    inputs = []
    for name, value in given.items():
        text = value if isinstance(value, str | bytes) else json.dumps(value)
        content = text.encode() if isinstance(text, str) else text
        tensor = kind.InferInput(name, [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[content]], np.object_))
        inputs.append(tensor)
    return inputs


def tensors(batch: Batch) -> list[Any]:
    """The graph's tensors for `tritonclient.grpc`, as a client sends them that has no drut."""
    inputs = []
    for name, array in batch.feed().items():
        wide = array if array.ndim > 1 else array[:, None]
        tensor = grpcclient.InferInput(name, wide.shape, "BOOL" if wide.dtype == bool else "INT64")
        tensor.set_data_from_numpy(wide)
        inputs.append(tensor)
    return inputs


def over_grpc(server: TritonServer, model: str, *given: Any, **more: Any) -> Any:
    with grpcclient.InferenceServerClient(server.grpc) as client:
        return ask(client, model, *given, **more)


def ask(client: grpcclient.InferenceServerClient, model: str, *given: Any, **more: Any) -> Any:
    """Ask over an open gRPC channel, which many threads may share."""
    found = client.infer(model, texts(*given, kind=grpcclient), **more)
    return json.loads(found.as_numpy("ANSWERS").item())


def over_http(server: TritonServer, model: str, *given: Any, **more: Any) -> Any:
    with httpclient.InferenceServerClient(server.http) as client:
        found = client.infer(model, texts(*given, kind=httpclient), **more)
        return json.loads(found.as_numpy("ANSWERS").item())


def over_json(server: TritonServer, model: str, *given: Any) -> Any:
    names = ("STATE", "QUESTIONS", "OPTIONS")
    inputs = [
        {
            "name": name,
            "shape": [1, 1],
            "datatype": "BYTES",
            "data": [value if isinstance(value, str) else json.dumps(value)],
        }
        for name, value in zip(names, given, strict=False)
    ]
    answer = server.call(f"models/{model}/infer", {"inputs": inputs})
    return json.loads(answer["outputs"][0]["data"][0])


def over_generate(server: TritonServer, model: str, *given: Any) -> Any:
    names = ("STATE", "QUESTIONS", "OPTIONS")
    body = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in zip(names, given, strict=False)
    }
    return json.loads(server.call(f"models/{model}/generate", body)["ANSWERS"])


PROTOCOLS: Mapping[str, Callable[..., Any]] = {
    "grpc": over_grpc,
    "http": over_http,
    "json": over_json,
    "generate": over_generate,
}


def alike(found: Any, expected: Any) -> None:
    """Equal but for the last of four decimals, which a batch of another shape may turn."""
    if isinstance(expected, Mapping):
        assert list(found) == [str(key) for key in expected]
        for key, value in expected.items():
            alike(found[str(key)], value)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, abs=1.01e-4)
    else:
        assert found == expected


def together(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run all calls at once; results in order, exceptions as results."""
    results: list[Any] = [None] * len(calls)
    gate = threading.Barrier(len(calls))

    def work(index: int) -> None:
        gate.wait()
        try:
            results[index] = calls[index]()
        except Exception as exc:
            results[index] = exc

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
