"""What the images run, tried on the real server: its options, health checks, and what they hold."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import triton_server as helper
from docker_files import DOCKER, Built, Instruction, build, read
from e2e.triton.asking import HURRY, over_grpc
from e2e.triton.conftest import SHIPPED
from triton_models import serve_bundle
from triton_server import TritonServer, triton_server

TRITON = read(DOCKER / "triton.Dockerfile").final


def only(word: str) -> Instruction:
    (found,) = TRITON.all(word)
    return found


def health(url: str, *models: str) -> "subprocess.CompletedProcess[str]":
    """The image's health check with this server's address; bare Python has to do."""
    interpreter, script, _ = json.loads(only("HEALTHCHECK").value.removeprefix("CMD "))
    assert interpreter == "python3"
    here = DOCKER / Path(script).name
    command = [sys.executable, "-I", "-S", here, url, *models]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def test_the_server_has_the_options_that_the_image_gives_it() -> None:
    done = subprocess.run(
        [helper._wheel() / "bin" / "tritonserver", "--help"],
        env=helper._environment(),
        capture_output=True,
        text=True,
        timeout=30,
    )
    known = set(re.findall(r"--[\w-]+", done.stdout + done.stderr))
    given = {word.partition("=")[0] for word in only("CMD").words[1:]}
    assert len(given) == 5
    assert given - known == set()


def test_a_good_server_is_healthy(triton: TritonServer) -> None:
    for models in ((), ("starter", "starter_decision")):
        done = health(triton.url, *models)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_missing_model_and_a_missing_server_are_told(triton: TritonServer) -> None:
    missing = health(triton.url, "starter", "nobody")
    assert missing.returncode == 1
    assert missing.stderr.startswith("nobody is not ready: ")
    assert missing.stderr.count("\n") == 1
    nowhere = health("http://127.0.0.1:9")
    assert nowhere.returncode == 1
    assert "does not answer" in nowhere.stderr
    assert health("127.0.0.1:8000").returncode == 2


def test_a_model_that_was_unloaded_on_purpose_is_no_illness(explicit: TritonServer) -> None:
    explicit.load("rolled")
    explicit.wait_ready("rolled")
    explicit.unload("rolled")
    assert health(explicit.url).returncode == 0


def test_health_tells_a_model_that_failed_to_load(tmp_path: Path) -> None:
    serve_bundle(tmp_path)
    broken = serve_bundle(tmp_path, "broken")
    (broken / "1" / "model.onnx").write_bytes(b"no graph")
    with triton_server(tmp_path, "--exit-on-error=false") as server:
        done = health(server.url)
        server.kill()
    assert done.returncode == 1
    assert "broken is not ready" in done.stderr
    assert "tiny" not in done.stderr


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(DOCKER / "cpu.Dockerfile", tmp_path_factory.mktemp("cpu"))


@pytest.fixture(scope="module")
def server_image(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(DOCKER / "triton.Dockerfile", tmp_path_factory.mktemp("server"))


@pytest.fixture(scope="module")
def in_image(server_image: Built) -> Iterator[TritonServer]:
    """A server whose Python models have the image's interpreter and packages.

    The stand-in for the onnxruntime backend needs more; that comes after them in the path.
    """
    (site,) = (server_image.python / "lib").glob("python3*/site-packages")
    (more,) = (helper.ENVIRONMENT / "lib").glob("python3*/site-packages")
    (site / "zz-stand-in.pth").write_text(f"{more}\n", encoding="utf-8")
    theirs = helper._environment
    path = f"{server_image.python / 'bin'}:/usr/bin:/bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(helper, "_environment", lambda: {**theirs(), "PATH": path})
        with triton_server(SHIPPED) as server:
            yield server


@pytest.mark.slow
def test_the_sdks_image_is_built_and_well(sdk: Built) -> None:
    assert [each.split()[0] for each in sdk.skipped] == ["groupadd"]
    done = sdk.run("drut", "doctor")  # the health check
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert f"{sdk.root}/models" in done.stdout.replace("\n", "")
    answered = sdk.run("drut", "predict", "I was charged twice", "--preset", "triage")
    assert answered.returncode == 0, answered.stderr


@pytest.mark.slow
def test_the_sdks_image_ends_at_its_stop_signal(sdk: Built) -> None:
    stop = read(DOCKER / "cpu.Dockerfile").final.last("STOPSIGNAL")
    assert stop is not None
    command = [sdk.root / "opt" / "drut" / "bin" / "drut", "predict", "--preset", "triage"]
    with subprocess.Popen(command, env=sdk.environment, stdin=subprocess.PIPE) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
        subprocess.run(["/bin/kill", f"-{stop.value}", str(process.pid)], check=True)
        assert process.wait(10) == 130


@pytest.mark.slow
def test_the_servers_image_answers_with_its_own_packages(
    server_image: Built, in_image: TritonServer
) -> None:
    assert server_image.skipped == []
    assert over_grpc(in_image, "starter_decision", "I was charged twice", HURRY)["answers"]
    loaded = "".join(
        Path("/proc", str(process), "maps").read_text(encoding="utf-8")
        for process in helper.running(in_image.pid)
    )
    assert f"{server_image.root}/opt/packages/numpy/" in loaded
    assert f"{server_image.root}/opt/packages/tokenizers/" in loaded


@pytest.mark.slow
def test_the_clients_image_checks_the_servers_image(sdk: Built, in_image: TritonServer) -> None:
    addresses = [f"--http=http://{in_image.http}", f"--grpc=grpc://{in_image.grpc}"]
    (sdk.root / "models" / "starter").symlink_to(SHIPPED / "starter")
    done = sdk.run(
        "python", "/opt/smoke/smoke.py", *addresses, f"--pid={in_image.pid}", "--requests=2"
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_packages_of_the_cuda_image_go_together(tmp_path: Path) -> None:
    """Nothing is missing but the driver's library, where there is none."""
    built = build(DOCKER / "cuda.Dockerfile", tmp_path)
    done = built.run("drut", "doctor", "--json")
    shutil.rmtree(tmp_path)  # gigabytes
    told = json.loads(done.stdout)
    assert told["versions"]["onnxruntime-gpu"]
    assert {each["device"]: each["usable"] for each in told["devices"]}["cpu"]
    wrong = [each["what"] for each in told["problems"]]
    assert [each for each in wrong if "libcuda.so.1" not in each] == []
