"""The real tritonserver, started for a test and gone after it.

    with triton_server(repository) as server:
        urlopen(f"http://{server.http}/v2/models/starter")

The binary comes from a wheel that `make triton` installs into an environment of its own. Its
onnxruntime backend is a stand-in (tests/triton_backend), everything else is NVIDIA's.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from drut.triton_model import METRIC

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".triton-venv"
STAND_IN = ROOT / "tests" / "triton_backend" / "onnxruntime"
SHARED_MEMORY = Path("/dev/shm")
PREFIX = "drut-test-"  # of servers' names and of their shared memory; our process id follows

START_SECONDS = 90.0  # the machine may be busy; an idle one takes 2 to 4
STOP_SECONDS = 20.0
EXIT_TIMEOUT_SECONDS = 3  # that the server itself grants to requests and open connections
START_ATTEMPTS = 4  # another process may take a port between our look and the server's start


class TritonStartError(RuntimeError):
    """The server did not start; the message ends with its log."""


class _PortTakenError(TritonStartError):
    """Somebody else listens on one of the ports."""


@dataclass
class TritonServer:
    """A running server. Addresses are `host:port`, as tritonclient takes them."""

    repository: Path
    http: str
    grpc: str
    metrics: str
    identity: str
    log_path: Path
    process: "subprocess.Popen[bytes]" = field(repr=False)

    @property
    def url(self) -> str:
        """Of the HTTP endpoint, with its scheme."""
        return f"http://{self.http}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """Everything the server has written so far."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def call(self, path: str, body: object = None, *, timeout: float = 30.0) -> Any:
        """GET `/v2/<path>`, or POST `body` as JSON; returns the JSON of the answer.

        Every call has a connection of its own, since an idle one delays the server's exit.
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}/v2/{path}".rstrip("/"), data=data)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def status(self, path: str, body: object = None) -> tuple[int, str]:
        """Status and text of the answer to the same call, whatever they are."""
        try:
            return 200, json.dumps(self.call(path, body))
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode(errors="replace")

    def is_ready(self, model: str, version: int | None = None) -> bool:
        """Whether the server would answer for this model."""
        place = model if version is None else f"{model}/versions/{version}"
        return self.status(f"models/{place}/ready")[0] == 200

    def wait_ready(self, model: str, *, seconds: float = 30.0) -> None:
        """Return once the model is ready; `TimeoutError` with the log if it never is."""
        end = time.monotonic() + seconds
        while not self.is_ready(model):
            if time.monotonic() > end:
                raise TimeoutError(f"{model} was not ready after {seconds} s\n{self.log()}")
            time.sleep(0.05)

    def statistics(self, model: str) -> Mapping[str, Any]:
        """Of all of the model's versions together, the counters that tests look at.

        Returns:
            `requests`, `rows` and `passes` that succeeded, and `mean_batch`, rows per pass.
        """
        found = self.call(f"models/{model}/stats")["model_stats"]
        rows = sum(int(each["inference_count"]) for each in found)
        passes = sum(int(each["execution_count"]) for each in found)
        requests = sum(int(each["inference_stats"]["success"]["count"]) for each in found)
        return {
            "requests": requests,
            "rows": rows,
            "passes": passes,
            "mean_batch": rows / passes if passes else 0.0,
        }

    def held(self, model: str) -> float:
        """Requests that a decision model says it has taken and not answered."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=30.0) as answer:
            text = answer.read().decode()
        (found,) = re.findall(rf'^{METRIC}{{model="{model}",.*}} (\S+)$', text, re.MULTILINE)
        return float(found)

    def wait_taken(self, model: str, count: int, *, seconds: float = 30.0) -> None:
        """Return once a decision model has taken so many requests in since it was loaded."""
        end = time.monotonic() + seconds
        while (taken := self.statistics(model)["rows"]) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{model} has taken {taken} of {count} requests")
            time.sleep(0.02)

    def restart(self) -> None:
        """Start a killed server again, at the same addresses."""
        with self.log_path.open("ab") as log:
            self.process = _spawn(self.process.args, log)
        _wait(self, START_SECONDS)

    def load(self, model: str, **parameters: object) -> None:
        """Load or reload a model; needs `--model-control-mode=explicit`."""
        self.call(f"repository/models/{model}/load", {"parameters": parameters})

    def unload(self, model: str) -> None:
        """Begin to unload a model; needs `--model-control-mode=explicit`."""
        self.call(f"repository/models/{model}/unload", {})

    def terminate(self) -> None:
        """Ask for an orderly end and do not wait for it."""
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the server and its Python processes at once, and clear what they held."""
        # The server leads a group of its own, so this reaches Python processes it left behind.
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()
            for _ in range(500):
                if not running(self.pid):
                    break
                os.killpg(self.pid, signal.SIGKILL)
                time.sleep(0.01)
        for region in SHARED_MEMORY.glob(f"{self.identity}*"):
            region.unlink(missing_ok=True)

    def stop(self) -> int:
        """End the server in order and return its exit code.

        Raises:
            RuntimeError: it did not end by itself and was killed.
        """
        if self.process.poll() is None:
            self.terminate()
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise RuntimeError(
                f"tritonserver ignored SIGTERM for {STOP_SECONDS} s\n{tail(self.log())}"
            ) from None
        finally:
            self.kill()
        return code


def running(group: int) -> list[int]:
    """Processes of a group that run; the dead ones that nobody has waited for do not."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(ProcessLookupError, FileNotFoundError):
                state, _, members = (
                    (entry / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[:3]
                )
                if int(members) == group and state not in "ZX":
                    found.append(int(entry.name))
    return found


@contextmanager
def triton_server(
    repository: Path | str,
    *args: str,
    seconds: float = START_SECONDS,
    auto_complete: bool = False,
) -> Iterator[TritonServer]:
    """Run a server over a model repository; it serves every model there when the block begins.

    Args:
        repository: the model repository; the server only reads it.
        args: further options of tritonserver.
        seconds: how long the start may take.
        auto_complete: whether it asks models about their configs, as it does by itself. Configs
            of drut leave nothing open, and it starts every Python process twice for that.

    Raises:
        TritonStartError: it ended or did not answer in time; the message holds its log.
    """
    require_environment()
    _sweep()
    if not auto_complete:
        args = (*args, "--disable-auto-complete-config")
    with tempfile.TemporaryDirectory(prefix="drut-triton-") as home:
        server = _start(Path(repository), args, Path(home), seconds)
        try:
            yield server
        finally:
            server.stop()


def require_environment() -> None:
    """Fail with the command that makes the server's environment."""
    if not (ENVIRONMENT / ".ready").exists():
        raise RuntimeError(f"there is no tritonserver in {ENVIRONMENT}; make it with: make triton")


def _sweep() -> None:
    """Remove the shared memory of test runs that were killed before they could."""
    for region in SHARED_MEMORY.glob(f"{PREFIX}*"):
        owner = region.name.removeprefix(PREFIX).partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            region.unlink(missing_ok=True)


def tail(text: str, lines: int = 60) -> str:
    """The last lines of a log."""
    return "\n".join(text.splitlines()[-lines:])


def _start(repository: Path, args: tuple[str, ...], home: Path, seconds: float) -> TritonServer:
    _make_backends(home / "backends")
    for attempt in range(1, START_ATTEMPTS + 1):
        try:
            return _start_once(repository, args, home, seconds)
        except _PortTakenError:
            if attempt == START_ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _start_once(
    repository: Path, args: tuple[str, ...], home: Path, seconds: float
) -> TritonServer:
    identity = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:12]}"
    ports = _free_ports(3)
    command = [
        str(_wheel() / "bin" / "tritonserver"),
        f"--id={identity}",
        f"--model-repository={repository}",
        f"--backend-directory={home / 'backends'}",
        f"--cache-directory={_wheel() / 'caches'}",
        *(
            f"--backend-config={name},shm-region-prefix-name={identity}"
            for name in ("python", "onnxruntime")
        ),
        *_addresses(ports),
        "--http-thread-count=8",
        "--allow-gpu-metrics=false",
        f"--exit-timeout-secs={EXIT_TIMEOUT_SECONDS}",
        *args,
    ]
    log = home / f"{identity}.log"
    with log.open("wb") as out:
        process = _spawn(command, out)
    http, grpc, metrics = (f"127.0.0.1:{port}" for port in ports)
    server = TritonServer(repository, http, grpc, metrics, identity, log, process)
    try:
        _wait(server, seconds)
    except BaseException:
        server.kill()
        raise
    return server


def _spawn(command: Any, log: IO[bytes]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        env=_environment(),
        start_new_session=True,
    )


def _wait(server: TritonServer, seconds: float) -> None:
    """Return when our own server answers, which it does once its models are loaded."""
    end = time.monotonic() + seconds
    while True:
        code = server.process.poll()
        if code is not None:
            kind = _PortTakenError if "already in use" in server.log() else TritonStartError
            raise kind(f"tritonserver ended with {code}\n{tail(server.log())}")
        with suppress(OSError, ValueError):
            found = server.call("", timeout=2.0)["name"]
            if found != server.identity:
                raise _PortTakenError(f"{found} listens on {server.http}")
            return
        if time.monotonic() > end:
            raise TritonStartError(
                f"tritonserver did not answer within {seconds} s\n{tail(server.log())}"
            )
        time.sleep(0.05)


def _addresses(ports: tuple[int, ...]) -> list[str]:
    names = ("http", "grpc", "metrics")
    return [
        option
        for name, port in zip(names, ports, strict=True)
        for option in (f"--{name}-address=127.0.0.1", f"--{name}-port={port}")
    ]


def _free_ports(count: int) -> tuple[int, ...]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return tuple(each.getsockname()[1] for each in sockets)
    finally:
        for each in sockets:
            each.close()


def _make_backends(place: Path) -> None:
    """A backend directory: the Python backend with the stub of our Python, and the stand-in."""
    shutil.copytree(_wheel() / "backends" / "python", place / "python")
    stubs = _wheel() / "python_backend_stubs" / _python_version()
    shutil.copy2(stubs / "triton_python_backend_stub", place / "python")
    (place / "onnxruntime").symlink_to(STAND_IN)


def _wheel() -> Path:
    library = next((ENVIRONMENT / "lib").glob("python3*"))
    return library / "site-packages" / "pytriton" / "tritonserver"


def _python_version() -> str:
    return next((ENVIRONMENT / "lib").glob("python3*")).name.removeprefix("python")


def _environment() -> dict[str, str]:
    """What the server needs to find its libraries, and its Python processes their packages."""
    site = _wheel().parents[1]
    base = Path(os.path.realpath(ENVIRONMENT / "bin" / "python")).parents[1]
    kept = {key: os.environ[key] for key in ("HOME", "LANG", "TMPDIR") if key in os.environ}
    return {
        **kept,
        "PATH": f"{ENVIRONMENT / 'bin'}:/usr/bin:/bin",
        "LD_LIBRARY_PATH": f"{site / 'nvidia_pytriton.libs'}:{base / 'lib'}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
    }


if __name__ == "__main__":
    with triton_server(*sys.argv[1:]) as running:
        print(f"{running.url} grpc={running.grpc} pid={running.pid}; end with Ctrl-C", flush=True)
        with suppress(KeyboardInterrupt):
            running.process.wait()
