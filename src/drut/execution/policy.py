"""Which policy a runtime's facts ask for."""

from typing import Final

from drut.batching import CPU_MAX_TOKENS, CPU_PADDING, DEFAULT_MAX_TOKENS, PassPolicy
from drut.runtimes.base import RuntimeInfo

_ENGINES: Final = frozenset({"onnxruntime", "openvino", "triton"})


def policy_for(
    info: RuntimeInfo,
    *,
    max_tokens: int | None = None,
    max_padding: float | None = None,
    max_positions: int | None = None,
    concurrent_passes: int | None = None,
) -> PassPolicy:
    """How rows become passes on this runtime.

    On a CPU rows of nearly the same length run together, several passes side by side, and a call
    is divided into as many as it takes to give every processor some. A GPU gets full passes of a
    bounded set of shapes. A server gets shapes that meet those of other clients. Where a row's
    answer depends on its neighbours it has none, or only those of its own length where these do
    not matter. A runtime of another kind is only held to the budget.

    Args:
        info: facts of the runtime.
        max_tokens: padded tokens of a pass at most, instead of what the device implies.
        max_padding: share of padding in a pass, instead of what the device implies.
        max_positions: tokens the encoder has positions for.
        concurrent_passes: passes in flight at the same time, instead of what the runtime suggests.
    """
    known = info.name in _ENGINES
    on_cpu = known and info.device == "cpu"
    remote = info.name == "triton"
    abreast = max(1, concurrent_passes or info.concurrent_passes)
    threads = info.details.get("threads") if on_cpu else None
    padding = (CPU_PADDING if on_cpu else 1.0) if max_padding is None else max_padding
    alone = not info.batch_invariant and not info.length_invariant
    return PassPolicy(
        max_tokens=max_tokens or (CPU_MAX_TOKENS if on_cpu else DEFAULT_MAX_TOKENS),
        max_rows=1 if alone else info.max_rows,
        max_padding=padding if info.batch_invariant else 0.0,
        bucket_tokens=remote or (known and not on_cpu),
        bucket_rows=known and not on_cpu and not remote,
        max_positions=max_positions,
        concurrent_passes=abreast,
        spread=max(1, abreast // threads) if isinstance(threads, int) and threads > 0 else 1,
    )
