"""Runs one engine in a process of its own and answers JSON lines: one command in, one result out.

The same file drives drut and upstream, each under its own interpreter, so that both are timed by
the same code. It needs nothing but the engine. Times are seconds, memory is bytes.
"""

import contextlib
import gc
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Drut:
    """drut, opened from an exported bundle."""

    def __init__(self, asked: dict[str, Any]) -> None:
        import drut

        self.agent = drut.load(
            asked["path"],
            device=asked["device"],
            runtime=asked["runtime"],
            threads=asked["threads"],
            **asked.get("options", {}),
        )
        self.one = self.agent.predict
        self.batch = self.agent.predict_batch
        self.versions = versions("drut", "onnxruntime", "openvino", "numpy", "tokenizers")

    def stream(self, states: Any, questions: Any) -> int:
        return sum(1 for _ in self.agent.predict_stream(states, questions))


class Laya:
    """Upstream on torch."""

    def __init__(self, asked: dict[str, Any]) -> None:
        import torch

        torch.set_num_threads(asked["threads"])
        torch.set_grad_enabled(False)
        import laya

        self.agent = laya.Agent(asked["path"], device=asked["device"])
        self.one = self.agent.predict
        self.batch = self.agent.predict_batch
        self.versions = versions("laya", "torch", "transformers", "numpy", "tokenizers")

    def stream(self, states: Any, questions: Any) -> int:
        return len(self.batch(list(states), questions))


class LayaOnnx(Laya):
    """Upstream's ONNXAgent; it takes no number of threads, so its session options get one."""

    def __init__(self, asked: dict[str, Any]) -> None:
        import onnxruntime

        plain = onnxruntime.SessionOptions

        def limited() -> Any:
            made = plain()
            made.intra_op_num_threads = asked["threads"]
            return made

        onnxruntime.SessionOptions = limited
        from laya.onnx_agent import ONNXAgent

        self.agent = ONNXAgent(asked["path"], onnx_path=asked["onnx"])
        self.one = self.agent.system_one
        self.batch = self.agent.predict_batch
        self.versions = versions("laya", "onnxruntime", "numpy", "tokenizers")


class Fake:
    """Answers at once: it stands in for an engine in the suite's own tests."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.versions = {"fake": "1"}

    def one(self, state: Any, questions: dict[str, Any]) -> dict[str, Any]:
        answers = {}
        for name, question in questions.items():
            options = list(question.get("criteria") or ("true", "false"))
            share = 1 / len(options)
            answers[name] = {"type": "choice", "probabilities": dict.fromkeys(options, share)}
        return {"answers": answers}

    def batch(self, states: Any, questions: Any, **options: Any) -> list[dict[str, Any]]:
        return [self.one(state, questions) for state in states]

    def stream(self, states: Any, questions: Any) -> int:
        return len(self.batch(list(states), questions))


ENGINES = {"drut": Drut, "laya": Laya, "laya-onnx": LayaOnnx, "fake": Fake}


def versions(*names: str) -> dict[str, str]:
    from importlib import metadata

    found = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def memory() -> dict[str, int]:
    """Resident bytes, and the highest they have been since `reset_peak`."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    read = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
    return {"resident": int(read["VmRSS"]) * 1024, "peak": int(read["VmHWM"]) * 1024}


def reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def plain_answers(result: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Probability by option of every answer, without what differs between versions."""
    found = {}
    for name, answer in result["answers"].items():
        if answer["type"] == "noul":
            found[name] = {"true": answer["noul"], "false": 1 - answer["noul"]}
        else:
            found[name] = dict(answer["probabilities"])
    return found


class Worker:
    """Holds the engine and does what it is told."""

    def __init__(self) -> None:
        self.engine: Any = None

    def load(self, asked: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        self.engine = ENGINES[asked["engine"]](asked)
        return {
            "seconds": time.perf_counter() - start,
            "versions": self.engine.versions,
            **memory(),
        }

    def time(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Calls of `one` or `batch`, each timed: wall and CPU seconds."""
        call = self._call(asked)
        for _ in range(asked.get("warm", 0)):
            call()
        wall, cpu = [], []
        gc.collect()
        for _ in range(asked["repeat"]):
            used, start = time.process_time(), time.perf_counter()
            call()
            wall.append(time.perf_counter() - start)
            cpu.append(time.process_time() - used)
        return {"wall": wall, "cpu": cpu, **memory()}

    def _call(self, asked: dict[str, Any]) -> Callable[[], Any]:
        states, questions = asked["states"], asked["questions"]
        if asked["method"] == "one":
            return lambda: self.engine.one(states[0], questions)
        options = asked.get("options", {})
        return lambda: self.engine.batch(states, questions, **options)

    def callers(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Threads that ask again as soon as they have their answer, for some seconds."""
        states, questions, count = asked["states"], asked["questions"], asked["callers"]
        taken: list[float] = []
        failures: list[str] = []
        gate = threading.Barrier(count + 1)
        stop = 0.0

        def ask(number: int) -> None:
            own: list[float] = []
            gate.wait()
            try:
                while (start := time.perf_counter()) < stop:
                    self.engine.one(states[(number + len(own) * count) % len(states)], questions)
                    own.append(time.perf_counter() - start)
            except Exception as exc:  # noqa: BLE001 - reported by the caller
                failures.append(repr(exc))
            taken.extend(own)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(count)]
        for thread in threads:
            thread.start()
        stop = time.perf_counter() + asked["seconds"]
        used, start = time.process_time(), time.perf_counter()
        gate.wait()
        for thread in threads:
            thread.join()
        wall, used = time.perf_counter() - start, time.process_time() - used
        if failures:
            raise RuntimeError(f"{len(failures)} callers failed, one with {failures[0]}")
        return {"taken": sorted(taken), "wall": wall, "cpu": used}

    def answers(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Probabilities for pairs of state and questions, in order."""
        given = [self.engine.one(*case) for case in asked["cases"]]
        return {"answers": [plain_answers(result) for result in given]}

    def stream(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer so many distinct states without holding the input; peak memory of it."""
        gc.collect()
        before = memory()["resident"]
        reset_peak()
        texts = asked["states"]
        states = (f"{index} {texts[index % len(texts)]}" for index in range(asked["count"]))
        used, start = time.process_time(), time.perf_counter()
        count = self.engine.stream(states, asked["questions"])
        wall, used = time.perf_counter() - start, time.process_time() - used
        return {"count": count, "wall": wall, "cpu": used, "before": before, **memory()}

    def memory(self, asked: dict[str, Any]) -> dict[str, Any]:
        gc.collect()
        return memory()


def main() -> None:
    """Answer commands until the input ends."""
    channel = sys.stdout
    sys.stdout = sys.stderr  # an engine that prints must not break the lines
    worker = Worker()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            done = getattr(worker, asked["do"])(asked)
        except Exception as exc:  # noqa: BLE001 - the suite reports it and goes on
            done = {"error": f"{type(exc).__name__}: {exc}"}
        channel.write(json.dumps(done) + "\n")
        channel.flush()


if __name__ == "__main__":
    main()
