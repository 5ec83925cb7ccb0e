"""Is this server's model the one whose tokenizer and settings lie here? Asked before first use."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from drut.checkpoint.opened import Checkpoint
from drut.errors import GraphContractError
from drut.runtimes.triton_transport import ModelRef
from drut.tensors import OUTPUTS, TensorSpec, graph_inputs

TOKENIZER_PARAMETER: Final = "tokenizer_sha256"
"""Parameter of `config.pbtxt` with the digest of the tokenizer that the graph was exported with."""

DTYPES: Final[Mapping[str, str]] = {"int64": "INT64", "bool": "BOOL", "float32": "FP32"}
"""NumPy's name of a dtype to the protocol's."""

_KINDS: Final = {"KIND_CPU": "cpu", "KIND_GPU": "cuda"}
UNNAMED: Final = "triton"
"""The device of a server that does not say where a model runs."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What the checkpoint on this side needs of the graph on the other."""

    parallel: bool
    actions: int
    tokenizer_sha256: str | None = None  # None: nothing to compare

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> "Expected":
        """What an opened checkpoint needs."""
        config = checkpoint.config
        return cls(config.parallel, config.actions, checkpoint.tokenizer.digest)


@dataclass(frozen=True, slots=True)
class Served:
    """A model that fits."""

    max_rows: int
    device: str  # where the server runs it: cpu, cuda or cuda:N; triton: it does not say
    versions: tuple[str, ...]
    tokenizer: str  # how its digest compares
    queue: str  # whether the server bounds its queue


def agree(
    model: ModelRef,
    url: str,
    expected: Expected,
    metadata: Mapping[str, Any],
    config: Mapping[str, Any],
) -> Served:
    """Compare a model with what is expected of it.

    Args:
        model: the model, for messages.
        url: the server's, for messages.
        expected: what is needed.
        metadata: what the server says about the model's tensors.
        config: the configuration it was loaded with.

    Raises:
        GraphContractError: everything that does not fit.
    """
    max_rows = _whole(config.get("max_batch_size"))
    faults = [
        *_tensor_faults(
            "input", graph_inputs(parallel=expected.parallel), metadata.get("inputs"), expected
        ),
        *_tensor_faults("output", OUTPUTS, metadata.get("outputs"), expected),
        *_unknown_inputs(metadata.get("inputs"), expected),
    ]
    if max_rows is None or max_rows < 1:
        faults.append(f"max_batch_size is {max_rows or 0}, so that rows cannot share a request")
    tokenizer, fault = _compare_tokenizers(expected.tokenizer_sha256, config)
    faults += [fault] if fault else []
    if faults or max_rows is None:
        raise GraphContractError(
            f"model {model} on {url} is not the graph of this checkpoint: {'; '.join(faults)}. "
            "Serve the bundle that drut export wrote, with its config.pbtxt, or open the one that "
            "the server has"
        )
    versions = tuple(map(str, metadata.get("versions") or ()))
    return Served(max_rows, _device(config), versions, tokenizer, _queue(config))


def _tensor_faults(
    kind: str, specs: Sequence[TensorSpec], told: object, expected: Expected
) -> Iterator[str]:
    found = _by_name(told)
    for spec in specs:
        tensor = found.get(spec.name)
        if tensor is None:
            yield f"it has no {kind} {spec.name!r}"
            continue
        wanted = _shape(spec, expected)
        shape = [_whole(size) for size in tensor.get("shape") or ()]
        datatype = tensor.get("datatype")
        if datatype != DTYPES[spec.dtype] or not _fits(shape, wanted):
            yield (
                f"{kind} {spec.name!r} is {datatype} {shape}, and not "
                f"{DTYPES[spec.dtype]} {list(wanted)}"
            )


def _unknown_inputs(told: object, expected: Expected) -> Iterator[str]:
    known = {spec.name for spec in graph_inputs(parallel=expected.parallel)}
    for name in _by_name(told).keys() - known:
        yield f"it wants an input {name!r} that this checkpoint does not have"


def _by_name(told: object) -> dict[str, Mapping[str, Any]]:
    tensors = told if isinstance(told, list) else []
    return {str(each.get("name")): each for each in tensors if isinstance(each, Mapping)}


def _shape(spec: TensorSpec, expected: Expected) -> tuple[int, ...]:
    """Shape as the protocol tells it; a tensor of rows alone travels as [rows, 1]."""
    sizes = {"actions": expected.actions}
    return (-1, *([sizes.get(axis, -1) for axis in spec.axes[1:]] or [1]))


def _fits(found: Sequence[int | None], wanted: Sequence[int]) -> bool:
    """Same rank and sizes; a server that leaves a size open may still give the wanted one."""
    return len(found) == len(wanted) and all(
        size in (-1, want) for size, want in zip(found, wanted, strict=True)
    )


def _compare_tokenizers(digest: str | None, config: Mapping[str, Any]) -> tuple[str, str | None]:
    """How the tokenizers compare, and the fault where they do not."""
    parameters = config.get("parameters")
    told = parameters.get(TOKENIZER_PARAMETER) if isinstance(parameters, Mapping) else None
    served = told.get("string_value") if isinstance(told, Mapping) else None
    if not served or digest is None:
        return "not compared: the server's config.pbtxt has no digest of it", None
    if served != digest:
        return "", f"it was exported with the tokenizer {served}, and the one here is {digest}"
    return "the same", None


def _device(config: Mapping[str, Any]) -> str:
    groups = config.get("instance_group")
    first = groups[0] if isinstance(groups, list) and groups else {}
    if not isinstance(first, Mapping):
        return UNNAMED
    kind = _KINDS.get(str(first.get("kind")), UNNAMED)
    gpus = first.get("gpus")
    if kind == "cuda" and isinstance(gpus, list) and len(gpus) == 1:
        return f"cuda:{gpus[0]}"
    return kind


def _queue(config: Mapping[str, Any]) -> str:
    batching = config.get("dynamic_batching")
    policy = batching.get("default_queue_policy") if isinstance(batching, Mapping) else None
    if not isinstance(policy, Mapping):
        return "unbounded"
    size, wait = (
        _whole(policy.get(name)) or 0 for name in ("max_queue_size", "default_timeout_microseconds")
    )
    if not size and not wait:
        return "unbounded"
    bounds = [f"{size} requests"] * bool(size) + [f"{wait / 1e6:g} s"] * bool(wait)
    return f"bounded to {' and '.join(bounds)}: server 2.51 stalls requests that meet others"


def _whole(value: object) -> int | None:
    """A number of the protocol: gRPC's JSON has long ones as text."""
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return None
