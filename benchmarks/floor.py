"""What the matrix products of a forward pass take alone, and the forward pass beside that.

    python -m benchmarks.floor [--only base]

For 128 tokens on one thread: every weight's product is run by itself in ONNX Runtime with its real
shape, and their sum is the least that a pass can take without a better kernel. The share is floor
by forward pass, both of medians of CPU time in the same run, taken in turn.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from benchmarks.checkpoints import MAKERS, Prepared, export, prepare
from benchmarks.suite import say
from drut.loading import open_by_name
from drut.runtimes.ort import OrtOptions, OrtRuntime
from drut.tensors import Batch
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch

TOKENS: Final = 128
OPSET: Final = 24
Shape = tuple[int, int, int]
"""Rows, inputs and outputs of a product."""

KINDS: Final = {"fp32": ("MatMul",), "int8": ("DynamicQuantizeMatMul", "MatMulInteger")}
PRODUCTS: Final = ("MatMul", "FusedMatMul", "Gemm", "FusedGemm")


def shapes_of(events: Sequence[dict[str, Any]]) -> Counter[Shape]:
    """Products with a matrix of weights, from what ONNX Runtime's profile says of one pass.

    The last head layer and the scorer run at few tokens only; the profile has the real rows.
    Products of two activations, as in attention, have more than two axes on the right; weights
    that the engine has packed are not in the profile at all, a bias may stand in their place.
    """
    shapes: Counter[Shape] = Counter()
    for event in events:
        told = event.get("args", {})
        if not event.get("name", "").endswith("_kernel_time") or told["op_name"] not in PRODUCTS:
            continue
        left, *rest = (next(iter(each.values())) for each in told["input_type_shape"])
        if rest and len(rest[0]) > 2:
            continue
        (made, *_) = (next(iter(each.values())) for each in told["output_type_shape"])
        shapes[(math.prod(left[:-1]), left[-1], made[-1])] += 1
    return shapes


def profiled(bundle: Path) -> Counter[Shape]:
    """The products of one pass of the float32 graph."""
    with tempfile.TemporaryDirectory() as directory:

        def profile(options: Any) -> None:
            options.enable_profiling = True
            options.profile_file_prefix = str(Path(directory) / "pass")

        runtime, batch = opened(bundle, profile)
        runtime.forward(batch)
        events = json.loads(Path(runtime.session.end_profiling()).read_text(encoding="utf-8"))
        runtime.close()
    return shapes_of(events)


def product(shape: Shape, kind: str) -> Callable[[], object]:
    """One product with seeded numbers, ready to run on one thread."""
    rows, inputs, _ = shape
    dice = np.random.default_rng(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = _single(shape, kind)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    left: Any = dice.standard_normal((rows, inputs)).astype(np.float32)
    if kind == "MatMulInteger":
        left = dice.integers(0, 256, (rows, inputs), dtype=np.uint8)
    return lambda: session.run(None, {"rows": left})


def _single(shape: Shape, kind: str) -> onnx.ModelProto:
    """A graph of nothing but the product; int8 weights have one scale a column."""
    rows, inputs, outputs = shape
    dice = np.random.default_rng(2)
    given, made, domain = TensorProto.FLOAT, TensorProto.FLOAT, ""
    weights = dice.integers(-127, 128, (inputs, outputs), dtype=np.int8)
    stored = [numpy_helper.from_array(weights, "weights")]
    if kind == "MatMul":
        stored = [numpy_helper.from_array(weights.astype(np.float32), "weights")]
    elif kind == "MatMulInteger":
        given, made = TensorProto.UINT8, TensorProto.INT32
    else:
        domain = "com.microsoft"
        stored.append(numpy_helper.from_array(np.full(outputs, 0.01, np.float32), "scales"))
        stored.append(numpy_helper.from_array(np.zeros(outputs, np.int8), "zeros"))
    names = ["rows", *(each.name for each in stored)]
    graph = helper.make_graph(
        [helper.make_node(kind, names, ["out"], domain=domain)],
        "product",
        [helper.make_tensor_value_info("rows", given, [rows, inputs])],
        [helper.make_tensor_value_info("out", made, [rows, outputs])],
        stored,
    )
    sets = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def opened(
    bundle: Path, session_options: Any = None, *, threads: int = 1
) -> tuple[OrtRuntime, Batch]:
    """A runtime, and one row of `TOKENS` tokens."""
    checkpoint = open_by_name(bundle)
    assert checkpoint.bundle is not None
    options = OrtOptions(device="cpu", threads=threads, session_options=session_options)
    batch = make_batch(TrialShape(1, TOKENS, 3), ModelFacts(checkpoint.tokenizer.vocab_size))
    return OrtRuntime(checkpoint.bundle.graph, options), batch


def measure(prepared: Prepared, *, quick: bool) -> dict[str, Any]:
    """By precision: milliseconds of the products, of the pass, and the share."""
    shapes = profiled(export(prepared, "fp32"))
    found: dict[str, Any] = {}
    for precision, kinds in KINDS.items():
        say(f"floor: {prepared.name} {precision}")
        runtime, batch = opened(export(prepared, precision))
        calls = {shape: [product(shape, kind) for kind in kinds] for shape in shapes}
        found[precision] = _compare(
            shapes, calls, lambda run=runtime, row=batch: run.forward(row), 5 if quick else 25
        )
        runtime.close()
    return found


def _compare(
    shapes: Counter[Shape],
    calls: dict[Shape, list[Callable[[], object]]],
    whole: Callable[[], object],
    rounds: int,
) -> dict[str, float]:
    """Medians over the rounds; of several operators for a product, the fastest counts."""
    alone: dict[Shape, list[list[float]]] = {shape: [[] for _ in calls[shape]] for shape in shapes}
    passes: list[float] = []
    for number in range(rounds + 2):
        taken = {shape: [_cpu(call) for call in made] for shape, made in calls.items()}
        spent = _cpu(whole)
        if number >= 2:  # the first two warm up
            passes.append(spent)
            for shape, seconds in taken.items():
                for kept, value in zip(alone[shape], seconds, strict=True):
                    kept.append(value)
    floor = sum(
        count * min(statistics.median(kept) for kept in alone[shape])
        for shape, count in shapes.items()
    )
    middle = statistics.median(passes)
    return {"floor_ms": floor * 1e3, "forward_ms": middle * 1e3, "share": floor / middle}


def _cpu(call: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    start = time.process_time()
    call()
    return time.process_time() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--only", choices=MAKERS)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    names = [given.only] if given.only else list(MAKERS)
    print(json.dumps({name: measure(prepare(name), quick=given.quick) for name in names}, indent=2))


if __name__ == "__main__":
    main()
