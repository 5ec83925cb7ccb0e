"""The variants that are compared: one line each of what runs, and where it comes from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from benchmarks.checkpoints import Prepared, export
from benchmarks.peer import Worker

PEER: Final = "laya torch"
"""The variant that every ratio is to."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to answer.

    Args:
        label: as it stands in the results.
        engine: a name of `worker.ENGINES`.
        precision: of drut's export, which upstream's ONNXAgent runs too; None: the checkpoint.
        runtime: of drut.
        devices: where it is worth measuring.
        needs: flags of the processor, one of which must be there.
        environment: variables of its process.
        options: further arguments of `drut.load`.
    """

    label: str
    engine: str
    precision: str | None = None
    runtime: str = "onnxruntime"
    devices: tuple[str, ...] = ("cpu",)
    needs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def upstream(self) -> bool:
        return self.engine.startswith("laya")


BF16_FLAGS: Final = ("avx512_bf16", "amx_bf16")
VARIANTS: Final = (
    Variant(PEER, "laya", devices=("cpu", "cuda"), environment={"LAYA_CUDA_AMP": "fp16"}),
    Variant("laya torch bf16", "laya", needs=BF16_FLAGS, environment={"LAYA_CPU_AMP": "bf16"}),
    Variant("laya ONNX", "laya-onnx", "fp32", devices=("cpu", "cuda")),
    Variant("drut fp32", "drut", "fp32", devices=("cpu", "cuda")),
    Variant("drut int8", "drut", "int8"),
    Variant("drut bf16", "drut", "bf16", "openvino", needs=BF16_FLAGS),
    Variant("drut fp16", "drut", "fp16", devices=("cuda",)),
)


def available(device: str, flags: frozenset[str]) -> list[Variant]:
    """The variants that can run here, in the table's order."""
    from drut_export.precision import PRECISIONS

    kind = device.partition(":")[0]
    return [
        variant
        for variant in VARIANTS
        if kind in variant.devices
        and (not variant.needs or flags.intersection(variant.needs))
        and (variant.precision is None or variant.precision in PRECISIONS)
        and (variant.upstream or find_spec(variant.runtime) is not None)
    ]


@dataclass(frozen=True, slots=True)
class Bench:
    """Where workers come from.

    Args:
        own: interpreter that has drut.
        peer: interpreter that has upstream.
        device: `cpu`, `cuda` or `cuda:N`.
        threads: of one forward pass.
        fake: stand in for every engine, for the suite's own tests.
    """

    own: Path
    peer: Path
    device: str = "cpu"
    threads: int = 2
    fake: bool = False

    def start(self, variant: Variant) -> Worker:
        """A process that has loaded nothing yet."""
        python = self.peer if variant.upstream else self.own
        threads = {"OMP_NUM_THREADS": str(self.threads)}
        return Worker(python, {**threads, **variant.environment})

    def loading(self, variant: Variant, prepared: Prepared) -> dict[str, Any]:
        """The `load` command of a variant; makes the export it needs."""
        asked = {
            "engine": "fake" if self.fake else variant.engine,
            "path": str(prepared.directory),
            "device": self.device,
            "threads": self.threads,
            "runtime": variant.runtime,
            "options": dict(variant.options),
        }
        if variant.precision is not None and not self.fake:
            bundle = export(prepared, variant.precision)
            if variant.upstream:
                asked["onnx"] = str(next(iter(sorted(bundle.glob("*/model.onnx")))))
            else:
                asked["path"] = str(bundle)
        return asked


def in_turn(workers: Mapping[str, Worker], rounds: int) -> Iterator[tuple[str, Worker]]:
    """Every worker once a round, each round beginning with the next one."""
    pairs = list(workers.items())
    for number in range(rounds):
        start = number % len(pairs)
        yield from pairs[start:] + pairs[:start]
