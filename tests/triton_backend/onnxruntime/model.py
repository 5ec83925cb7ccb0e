"""Stand-in for Triton's onnxruntime backend, which exists only inside NVIDIA's images.

A Python-based backend of that name: the server reads the same `config.pbtxt`, and everything but
the session (scheduling, merging, warm-up, versions, statistics) is the server's own. What the real
backend refuses while loading is refused here too; requests with ragged inputs are not served.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

TYPES = {
    "tensor(bool)": "TYPE_BOOL",
    "tensor(double)": "TYPE_FP64",
    "tensor(float)": "TYPE_FP32",
    "tensor(float16)": "TYPE_FP16",
    "tensor(int32)": "TYPE_INT32",
    "tensor(int64)": "TYPE_INT64",
    "tensor(int8)": "TYPE_INT8",
    "tensor(string)": "TYPE_STRING",
    "tensor(uint8)": "TYPE_UINT8",
}
LEVELS = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
SWITCHES = {"0": False, "1": True, "false": False, "true": True}


class TritonPythonModel:
    """One instance: a session of its own, as the real backend has."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        """A config that names its tensors is taken as it is."""
        return auto_complete_model_config

    def initialize(self, args: Mapping[str, str]) -> None:
        config = json.loads(args["model_config"])
        version = Path(args["model_repository"], args["model_version"])
        path = version / (config.get("default_model_filename") or "model.onnx")
        if not path.exists():
            raise refusal(f"unable to find '{path}' for model instance '{config['name']}'")
        options, self._run_options = session_settings(config)
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._batching = config["max_batch_size"] > 0
        check_tensors(config, self._session)
        self._inputs = [entry["name"] for entry in config["input"]]
        self._outputs = {entry["name"]: entry for entry in config["output"]}

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """One pass over the rows of all requests, which the server has found to be alike."""
        try:
            given = [
                [pb_utils.get_input_tensor_by_name(each, name).as_numpy() for name in self._inputs]
                for each in requests
            ]
            feed = {
                name: np.concatenate([arrays[place] for arrays in given])
                for place, name in enumerate(self._inputs)
            }
            found = self._session.run(list(self._outputs), feed, self._run_options)
        except Exception as exc:
            text = f"onnx runtime error: {exc}"
            fault = pb_utils.TritonError(text, pb_utils.TritonError.INTERNAL)
            return [pb_utils.InferenceResponse(error=fault) for _ in requests]
        ends = np.cumsum([len(arrays[0]) for arrays in given])
        return [
            self._response(request, found, slice(end - len(arrays[0]), end))
            for request, arrays, end in zip(requests, given, ends, strict=True)
        ]

    def _response(self, request: Any, found: Sequence[np.ndarray], rows: slice) -> Any:
        wanted = request.requested_output_names()
        tensors = []
        for (name, entry), whole in zip(self._outputs.items(), found, strict=True):
            if name in wanted:
                part = whole[rows] if self._batching else whole
                if "reshape" in entry:
                    part = part.reshape(len(part), *map(int, entry["dims"]))
                tensors.append(pb_utils.Tensor(name, np.ascontiguousarray(part)))
        return pb_utils.InferenceResponse(tensors)


def session_settings(config: Mapping[str, Any]) -> tuple[ort.SessionOptions, ort.RunOptions]:
    """What the real backend reads of a config; like there, all other parameters are ignored."""
    given = {key: entry["string_value"] for key, entry in config.get("parameters", {}).items()}
    optimization = config.get("optimization") or {}
    options, run_options = ort.SessionOptions(), ort.RunOptions()
    options.intra_op_num_threads = max(0, number(given, "intra_op_thread_count"))
    options.inter_op_num_threads = max(0, number(given, "inter_op_thread_count"))
    mode = number(given, "execution_mode")
    if mode not in (0, 1):
        raise refusal(
            "Invalid configuration value provided. Expected values for  execution_mode are 0 or 1 "
            f"but got {mode} ."
        )
    options.execution_mode = (
        ort.ExecutionMode.ORT_PARALLEL if mode else ort.ExecutionMode.ORT_SEQUENTIAL
    )
    level = int((optimization.get("graph") or {}).get("level", 0))
    options.graph_optimization_level = LEVELS.get(level, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    options.enable_cpu_mem_arena = switch(given, "enable_mem_arena")
    options.enable_mem_pattern = switch(given, "enable_mem_pattern")
    shrinkage = "memory.enable_memory_arena_shrinkage"
    if shrinkage in given:
        run_options.add_run_config_entry(shrinkage, given[shrinkage])
    accelerators = optimization.get("execution_accelerators") or {}
    for entry in accelerators.get("cpu_execution_accelerator", ()):
        raise refusal(f"unknown Execution Accelerator '{entry['name']}' is requested")
    return options, run_options


def check_tensors(config: Mapping[str, Any], session: ort.InferenceSession) -> None:
    """Refuse a config whose names, types or shapes are not those of the graph."""
    inputs = {node.name: node for node in session.get_inputs()}
    outputs = {node.name: node for node in session.get_outputs()}
    if len(config["input"]) != len(inputs):
        raise refusal(
            f"unable to load model '{config['name']}', configuration expects "
            f"{len(config['input'])} inputs, model provides {len(inputs)}"
        )
    for kind, entries, nodes in (
        ("input", config["input"], inputs),
        ("output", config["output"], outputs),
    ):
        for entry in entries:
            if entry["name"] not in nodes:
                raise refusal(
                    f"unexpected inference {kind} '{entry['name']}', allowed {kind}s are: "
                    f"{', '.join(sorted(nodes))}"
                )
            check_tensor(kind, entry, nodes[entry["name"]], batching=config["max_batch_size"] > 0)


def check_tensor(kind: str, entry: Mapping[str, Any], node: Any, *, batching: bool) -> None:
    if TYPES.get(node.type) != entry["data_type"]:
        raise refusal(
            f"configuration expects datatype {entry['data_type']} for {kind} '{entry['name']}', "
            f"model provides {TYPES.get(node.type, node.type)}"
        )
    shape = entry["reshape"].get("shape", []) if "reshape" in entry else entry["dims"]
    told = ([-1] if batching else []) + [int(size) for size in shape]
    real = [size if isinstance(size, int) else -1 for size in node.shape]
    if batching and real[:1] != [-1]:
        raise refusal(
            f"tensor '{entry['name']}': for the model to support batching the shape should have at "
            f"least 1 dimension and the first dimension must be -1; but shape expected by the "
            f"model is {real}"
        )
    # An input of any size may be narrowed down; an output has to be told exactly.
    alike = len(told) == len(real) and all(
        known == wanted or (known == -1 and kind == "input")
        for known, wanted in zip(real, told, strict=True)
    )
    if not alike:
        raise refusal(
            f"tensor '{entry['name']}': the model expects {len(real)} dimensions (shape {real}) "
            f"but the model configuration specifies {len(told)} dimensions (an initial batch "
            f"dimension because max_batch_size > 0 followed by the explicit tensor shape, making "
            f"complete shape {told})"
        )


def number(given: Mapping[str, str], key: str) -> int:
    try:
        return int(given.get(key, "0"))
    except ValueError:
        raise refusal(f"failed to convert '{given[key]}' to integral number") from None


def switch(given: Mapping[str, str], key: str) -> bool:
    text = given.get(key, "1").lower()
    if text not in SWITCHES:
        raise refusal(f"failed to convert '{given[key]}' to boolean")
    return SWITCHES[text]


def refusal(text: str) -> Exception:
    return pb_utils.TritonModelException(text)
