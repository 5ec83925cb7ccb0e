"""What is wrong with a model repository, told before a server finds out or worse, does not."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from drut.checkpoint.bundle import Bundle, read_bundle, versions
from drut.errors import DrutError, MissingDependencyError
from drut.triton_model import DECISION_SUFFIX
from drut_export.pbtxt import CONFIG_PBTXT, TRITON_TYPES
from drut_export.triton_files import models_in

READ_BY_BACKEND: Final = frozenset(
    {
        "arena_extend_strategy",
        "cudnn_conv_algo_search",
        "do_copy_in_default_stream",
        "enable_mem_arena",
        "enable_mem_pattern",
        "execution_mode",
        "gpu_mem_limit",
        "inter_op_thread_count",
        "intra_op_thread_count",
        "memory.enable_memory_arena_shrinkage",
        "session.use_device_allocator_for_initializers",
    }
)
"""Parameters that Triton's onnxruntime backend looks for; it is silent about all others."""

READ_BY_CLIENTS: Final = frozenset({"tokenizer_sha256", "drut_version"})
READ_BY_DECISION: Final = (
    frozenset({"graph", "bundle", "bundle_version", "target", "max_padding", "max_queue"})
    | READ_BY_CLIENTS
)

TENSORRT_OPTIONS: Final = frozenset(
    {"precision_mode", "max_workspace_size_bytes"}
    | {f"int8_{key}" for key in ("calibration_table_name", "use_native_calibration_table")}
    | {
        f"trt_{key}"
        for key in (
            *("auxiliary_streams", "build_heuristics_enable", "builder_optimization_level"),
            *("context_memory_sharing_enable", "cuda_graph_enable", "detailed_build_log"),
            *("dla_core", "dla_enable", "dump_ep_context_model", "dump_subgraphs"),
            *("engine_cache_enable", "engine_cache_path", "engine_cache_prefix"),
            *("ep_context_embed_mode", "ep_context_file_path", "extra_plugin_lib_paths"),
            *("force_sequential_engine_build", "force_timing_cache", "layer_norm_fp32_fallback"),
            *("max_partition_iterations", "min_subgraph_size", "profile_max_shapes"),
            *("profile_min_shapes", "profile_opt_shapes", "sparsity_enable", "tactic_sources"),
            *("timing_cache_enable", "timing_cache_path"),
        )
    }
)
"""Options that the backend knows for the accelerator `tensorrt`; others fail a load on a GPU."""

CUDA_OPTIONS: Final = frozenset(
    {
        "cudnn_conv1d_pad_to_nc1d",
        "cudnn_conv_use_max_workspace",
        "enable_cuda_graph",
        "enable_skip_layer_norm_strict_mode",
        "fuse_conv_bias",
        "prefer_nhwc",
        "sdpa_kernel",
        "tunable_op_enable",
        "tunable_op_max_tuning_duration_ms",
        "tunable_op_tuning_enable",
        "use_ep_level_unified_stream",
        "use_tf32",
    }
)
"""Options of ONNX Runtime's CUDA provider that reach it through the accelerator `cuda`.

`arena_extend_strategy` and three others do not: the backend overwrites them with parameters of
the model, or with its own defaults.
"""

_ACCELERATORS: Final[Mapping[str, frozenset[str]]] = {
    "cuda": CUDA_OPTIONS,
    "tensorrt": TENSORRT_OPTIONS,
}


def check_repository(repository: Path) -> list[str]:
    """Faults of every bundle's files for Triton in a model repository; other models are ignored.

    Raises:
        MissingDependencyError: what reads configs or graphs is not installed.
    """
    parse = _parser()
    faults = []
    models = models_in(repository)
    for model in models:
        faults += [f"{model.name}: {fault}" for fault in _check_model(model, parse)]
    names = {model.name for model in models}
    for decision in sorted(repository.glob(f"*{DECISION_SUFFIX}")):
        if decision.name not in names and decision.name.removesuffix(DECISION_SUFFIX) not in names:
            faults.append(
                f"{decision.name}: its graph {decision.name.removesuffix(DECISION_SUFFIX)!r} is "
                "not here, so a server would fail to load it; remove the directory"
            )
    return faults


def check_config(config: Any, bundle: Bundle) -> Iterator[str]:
    """Faults of the parsed config of a bundle's graph.

    Args:
        config: a `ModelConfig` message of Triton.
        bundle: the version that is served by it.
    """
    if config.name and config.name != bundle.directory.parent.name:
        yield f"the config names the model {config.name!r}, its directory is another"
    if not bundle.batch_invariant and config.max_batch_size > 1:
        yield (
            f"max_batch_size is {config.max_batch_size}, but rows of this graph change with their "
            "neighbours; it has to be 1"
        )
    yield from _check_tensors(config, bundle)
    yield from _check_parameters(config, READ_BY_BACKEND | READ_BY_CLIENTS)
    yield from _check_identity(config, bundle)
    yield from _check_accelerators(config)
    yield from _check_queue(config)
    yield from _check_warm_up(config)


def _check_model(model: Path, parse: Callable[[str], Any]) -> Iterator[str]:
    try:
        config = _config(model, parse)
        number = _served(config, model)
        bundle = read_bundle(model, number)
        yield from check_config(config, bundle)
        yield from _check_decision(model, number, parse)
    except (DrutError, OSError, ValueError) as exc:
        yield str(exc)


def _served(config: Any, model: Path) -> int:
    """The highest version that the config lets a server load."""
    wanted = set(config.version_policy.specific.versions)
    present = set(versions(model))
    if wanted and not wanted & present:
        raise ValueError(
            f"version_policy names {sorted(wanted)}, the versions here are {sorted(present)}"
        )
    return max(wanted & present or present)


def _check_decision(model: Path, number: int, parse: Callable[[str], Any]) -> Iterator[str]:
    directory = model.with_name(f"{model.name}{DECISION_SUFFIX}")
    if not directory.is_dir():
        yield "it has no decision model; write one with: drut repository write"
        return
    config = _config(directory, parse)
    given = {key: each.string_value for key, each in config.parameters.items()}
    if given.get("graph") != model.name or given.get("bundle_version") != str(number):
        yield (
            f"its decision model asks {given.get('graph')!r} version "
            f"{given.get('bundle_version')!r}, served is {model.name!r} version {number}"
        )
    if not (directory / "1" / "model.py").is_file():
        yield f"{directory / '1' / 'model.py'} is missing"
    yield from _check_parameters(config, READ_BY_DECISION)
    yield from _check_identity(config, read_bundle(model, number))
    yield from _check_queue(config)


def _check_tensors(config: Any, bundle: Bundle) -> Iterator[str]:
    """Compare names, types and shapes with the graph itself, as the backend does on loading."""
    inputs, outputs = _graph_tensors(bundle.graph)
    for kind, entries, real in (
        ("input", config.input, inputs),
        ("output", config.output, outputs),
    ):
        told = {entry.name: entry for entry in entries}
        if told.keys() != real.keys():
            yield f"the config has the {kind}s {sorted(told)}, the graph {sorted(real)}"
            continue
        for name, entry in told.items():
            yield from _check_tensor(f"{kind} {name!r}", entry, real[name])


def _check_tensor(what: str, entry: Any, real: tuple[str, list[int]]) -> Iterator[str]:
    kind, shape = real
    told = type(entry).DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    name = told[entry.data_type].name
    if name != kind:
        yield f"{what} is {name} in the config, {kind} in the graph"
    dims = list(entry.reshape.shape) if entry.HasField("reshape") else list(entry.dims)
    if dims != shape:
        yield f"{what} is {dims} in the config, {shape} in the graph, both without the batch"
    if not entry.dims:
        yield f"{what} has no dims; Triton wants at least one"


def _check_parameters(config: Any, known: frozenset[str]) -> Iterator[str]:
    for key in sorted(config.parameters.keys() - known):
        yield f"the parameter {key!r} is read by nobody; Triton ignores it in silence"


def _check_identity(config: Any, bundle: Bundle) -> Iterator[str]:
    told = config.parameters["tokenizer_sha256"].string_value if config.parameters else ""
    expected = bundle.manifest.get("tokenizer_sha256")
    if told and expected and told != expected:
        yield f"tokenizer_sha256 is {told}, that of version {bundle.version} is {expected}"


def _check_accelerators(config: Any) -> Iterator[str]:
    for entry in config.optimization.execution_accelerators.gpu_execution_accelerator:
        if entry.name not in _ACCELERATORS:
            yield f"the accelerator {entry.name!r} is unknown; use {' or '.join(_ACCELERATORS)}"
            continue
        for key in sorted(entry.parameters.keys() - _ACCELERATORS[entry.name]):
            yield f"the accelerator {entry.name!r} has no option {key!r}, or it has no effect there"


def _check_queue(config: Any) -> Iterator[str]:
    policy = config.dynamic_batching.default_queue_policy
    if policy.allow_timeout_override and not policy.default_timeout_microseconds:
        yield (
            "allow_timeout_override has no effect without default_timeout_microseconds, the "
            "ceiling of what callers may ask for"
        )
    groups = [group.count for group in config.instance_group]
    delay = config.dynamic_batching.max_queue_delay_microseconds
    if delay and sum(groups) > 1 and _is_bounded(config):
        yield (
            "several instances, a queue delay and queue limits together lose throughput over "
            "time in servers before mid-2026; leave the delay out"
        )


def _is_bounded(config: Any) -> bool:
    """Whether the server's batcher looks at its queue one pass at a time, and may oversleep."""
    batching = config.dynamic_batching
    policy = batching.default_queue_policy
    return bool(
        policy.max_queue_size
        or policy.default_timeout_microseconds
        or policy.allow_timeout_override
        or batching.priority_levels
    )


def notes_on_repository(repository: Path) -> list[str]:
    """What works in a model repository and has a price; configs that cannot be read have none.

    Raises:
        MissingDependencyError: what reads configs is not installed.
    """
    parse = _parser()
    notes = []
    for model in models_in(repository):
        for directory in (model, model.with_name(f"{model.name}{DECISION_SUFFIX}")):
            try:
                bounded = _is_bounded(_config(directory, parse))
            except (OSError, ValueError):
                continue
            if bounded:
                notes.append(
                    f"{directory.name}: its queue in the server has bounds or priorities; server "
                    "2.51 then lets requests that meet others wait for half a second. Without "
                    "them it does not; write that with: drut repository write --max-queue 0 "
                    "--queue-timeout 0"
                )
    return notes


def _check_warm_up(config: Any) -> Iterator[str]:
    for sample in config.model_warmup:
        kinds = {entry.WhichOneof("input_data_type") for entry in sample.inputs.values()}
        if "random_data" in kinds:
            yield f"warm-up {sample.name!r} has random_data: ids that no vocabulary has"
        if sample.inputs.keys() != {entry.name for entry in config.input}:
            yield f"warm-up {sample.name!r} does not have exactly the model's inputs"
        if sample.batch_size > max(1, config.max_batch_size):
            yield f"warm-up {sample.name!r} has more rows than max_batch_size"


def _config(model: Path, parse: Callable[[str], Any]) -> Any:
    path = model / CONFIG_PBTXT
    if not path.is_file():
        raise ValueError(f"{path} is missing; write it with: drut repository write {model}")
    return parse(path.read_text(encoding="utf-8"))


def _parser() -> Callable[[str], Any]:
    try:
        from google.protobuf import text_format
        from tritonclient.grpc import model_config_pb2
    except ImportError as exc:
        raise MissingDependencyError(
            f"checking configs needs drut[triton], which is not installed here ({exc})"
        ) from exc

    def parse(text: str) -> Any:
        try:
            return text_format.Parse(text, model_config_pb2.ModelConfig())
        except text_format.ParseError as exc:
            raise ValueError(f"{CONFIG_PBTXT} cannot be read: {exc}") from exc

    return parse


def _graph_tensors(
    path: Path,
) -> tuple[dict[str, tuple[str, list[int]]], dict[str, tuple[str, list[int]]]]:
    """Triton type and shape behind the batch axis of the graph's inputs and outputs."""
    from drut.runtimes.ort import graph_ports

    inputs, outputs = graph_ports(path)
    return _described(inputs), _described(outputs)


def _described(nodes: Iterable[Any]) -> dict[str, tuple[str, list[int]]]:
    kinds = {
        "tensor(int64)": TRITON_TYPES["int64"],
        "tensor(bool)": TRITON_TYPES["bool"],
        "tensor(float)": TRITON_TYPES["float32"],
    }
    return {
        node.name: (
            kinds.get(node.type, node.type),
            [size if isinstance(size, int) else -1 for size in node.shape[1:]],
        )
        for node in nodes
    }
