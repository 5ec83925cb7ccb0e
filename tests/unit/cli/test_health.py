import json
from importlib import metadata
from pathlib import Path

import pytest

from bundles import write_bundle
from drut.cli import health
from drut.cli.doctor import show
from drut.cli.health import Health, examine
from drut.cli.probe import DeviceCheck, try_device
from drut.runtimes.devices import CPU, CUDA, TENSORRT


class Machine:
    """A made-up machine: the providers of its ONNX Runtime, and the devices that work."""

    def __init__(self, *providers: str, works: tuple[str, ...] = ("cpu",)) -> None:
        self.providers = list(providers) or [CPU]
        self.works = works
        self.tried: list[tuple[str, str]] = []

    def __call__(self, directory: Path, device: str) -> tuple[DeviceCheck, list[str]]:
        self.tried.append((directory.parent.name, device))
        return DeviceCheck(device, device in self.works, "because"), self.providers


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is installed, to be changed by the test."""
    packages = {"drut": "1", "numpy": "2", "onnxruntime": "1.23"}

    def version(name: str) -> str:
        if name not in packages:
            raise metadata.PackageNotFoundError(name)
        return packages[name]

    monkeypatch.setattr(metadata, "version", version)
    return packages


@pytest.fixture
def bundle(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(home / "bundles"))
    return write_bundle(home / "bundles", "starter")


def whats(found: Health) -> str:
    return "; ".join(problem.what for problem in found.problems)


@pytest.mark.usefixtures("bundle", "installed")
def test_a_sound_cpu_machine_is_healthy() -> None:
    found = examine(Machine())
    assert found.problems == []
    assert found.as_dict()["healthy"] is True
    assert [(each.device, each.usable) for each in found.devices] == [
        ("cpu", True),
        ("cuda:0", False),
    ]


@pytest.mark.usefixtures("bundle", "installed")
def test_cuda_is_not_tried_where_it_is_not_built_in() -> None:
    machine = Machine(CPU)
    examine(machine)
    assert machine.tried == [("starter", "cpu")]


@pytest.mark.usefixtures("bundle")
def test_openvino_is_tried_where_it_is_installed(installed: dict[str, str]) -> None:
    installed["openvino"] = "2026.4"
    found = examine(Machine(works=("cpu", "openvino")))
    assert (found.devices[-1].device, found.devices[-1].usable) == ("openvino", True)
    assert found.versions["openvino"] == "2026.4"


@pytest.mark.usefixtures("bundle")
def test_a_working_gpu_is_usable_and_tensorrt_is_left_alone(installed: dict[str, str]) -> None:
    installed["onnxruntime-gpu"] = installed.pop("onnxruntime")
    machine = Machine(TENSORRT, CUDA, CPU, works=("cpu", "cuda:0"))
    found = examine(machine)
    assert found.problems == []
    assert [(each.device, each.usable) for each in found.devices] == [
        ("cpu", True),
        ("cuda:0", True),
        ("tensorrt:0", None),
    ]
    assert machine.tried == [("starter", "cpu"), ("starter", "cuda:0")]


@pytest.mark.usefixtures("bundle")
def test_a_gpu_package_without_a_working_gpu_is_a_problem(installed: dict[str, str]) -> None:
    installed["onnxruntime-gpu"] = installed.pop("onnxruntime")
    assert "no session runs on cuda:0: because" in whats(examine(Machine(CUDA, CPU)))


@pytest.mark.usefixtures("bundle")
def test_a_gpu_package_overwritten_by_the_cpu_package_is_a_problem(
    installed: dict[str, str],
) -> None:
    installed["onnxruntime-gpu"] = installed.pop("onnxruntime")
    assert "built without CUDA" in whats(examine(Machine(CPU)))


@pytest.mark.usefixtures("bundle")
def test_two_engine_packages_conflict(installed: dict[str, str]) -> None:
    installed["onnxruntime-gpu"] = "1.23"
    found = examine(Machine(CUDA, CPU, works=("cpu", "cuda:0")))
    assert "onnxruntime and onnxruntime-gpu are both installed" in whats(found)


@pytest.mark.usefixtures("bundle")
def test_no_engine_is_a_problem(installed: dict[str, str]) -> None:
    del installed["onnxruntime"]
    assert "ONNX Runtime is not installed" in whats(examine(Machine(works=())))


@pytest.mark.usefixtures("home", "installed")
def test_without_a_bundle_nothing_is_tried_and_that_is_a_problem() -> None:
    machine = Machine()
    found = examine(machine)
    assert machine.tried == []
    assert [each.usable for each in found.devices] == [None]
    assert whats(found) == "there is no exported bundle"
    assert "drut export" in found.problems[0].do


@pytest.mark.usefixtures("installed")
def test_a_damaged_bundle_is_a_problem_and_another_one_is_tried(home: Path, bundle: Path) -> None:
    (bundle / "model.onnx").unlink()
    write_bundle(home / "bundles", "other")
    machine = Machine()
    assert "bundle starter is damaged" in whats(examine(machine))
    assert machine.tried == [("other", "cpu")]


@pytest.mark.usefixtures("installed")
def test_the_starter_is_preferred(home: Path, bundle: Path) -> None:
    write_bundle(home / "bundles", "another")
    machine = Machine()
    examine(machine)
    assert machine.tried == [("starter", "cpu")]


@pytest.mark.usefixtures("bundle", "installed")
@pytest.mark.parametrize(
    ("variable", "value", "what"),
    [
        ("DRUT_DEVICE", "gpu0", "unknown device 'gpu0'"),
        ("DRUT_DEVICE", "cuda", "DRUT_DEVICE asks for cuda:0"),
        ("DRUT_THREADS", "many", "DRUT_THREADS"),
        ("DRUT_SHA256_DIGESTS", "{", "DRUT_SHA256_DIGESTS"),
    ],
)
def test_a_setting_that_cannot_work_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, what: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert what in whats(examine(Machine()))


@pytest.mark.usefixtures("installed")
def test_a_named_repository_that_is_missing_is_a_problem(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repositories = f"/nowhere/at/all:{bundle.parents[1]}"
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", repositories)
    assert whats(examine(Machine())) == (
        "DRUT_MODEL_REPOSITORY names /nowhere/at/all, which is not a directory"
    )


@pytest.mark.usefixtures("bundle", "installed")
def test_threads_follow_the_setting_and_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "usable_cpus", lambda: 3)
    monkeypatch.setattr(health, "cpu_quota", lambda: 2.5)
    assert examine(Machine()).threads.forward == 3
    monkeypatch.setenv("DRUT_THREADS", "7")
    threads = examine(Machine()).threads
    assert (threads.forward, threads.usable_processors, threads.quota) == (7, 3, 2.5)


@pytest.mark.usefixtures("bundle", "installed")
def test_the_report_is_json_and_names_what_is_not_installed() -> None:
    report = json.loads(json.dumps(examine(Machine()).as_dict(), allow_nan=False))
    assert report["versions"]["onnxruntime"] == "1.23"
    assert report["versions"]["torch"] is None
    assert report["bundles"][0]["name"] == "starter"
    assert set(report["hub"]) == {"cache", "exists", "offline", "endpoint"}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_the_report_for_people_fits_the_console(bundle: Path, width: int) -> None:
    import io

    from drut.cli.console import console_on

    (bundle / "model.onnx").unlink()
    to = io.StringIO()
    show(examine(Machine()), console_on(to, width=width))
    assert all(len(line) <= width for line in to.getvalue().splitlines())
    assert "What is wrong" in to.getvalue()
    assert "1." in to.getvalue()


def test_a_device_is_tried_with_a_real_session(repository: Path) -> None:
    check, providers = try_device(repository / "starter" / "1", "cpu")
    assert check.usable is True
    assert "answers on cpu" in check.detail
    assert CPU in providers


def test_openvino_is_tried_with_a_real_session_and_tells_of_bfloat16(repository: Path) -> None:
    check, _ = try_device(repository / "starter" / "1", "openvino")
    assert check.usable
    assert "bfloat16" in check.detail


def test_a_device_that_is_promised_but_not_there_is_not_usable(repository: Path) -> None:
    check, _ = try_device(repository / "starter" / "1", "cuda:7")
    assert check.usable is False
    assert "CUDA" in check.detail


def test_a_child_that_dies_is_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drut.cli.probe._CHILD", "import os; os.abort()")
    check, providers = try_device(tmp_path, "cpu")
    assert check.usable is False
    assert "crashed (-6)" in check.detail
    assert providers == []


def test_a_child_that_hangs_is_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drut.cli.probe._CHILD", "import time; time.sleep(60)")
    check, _ = try_device(tmp_path, "cpu", seconds=0.3)
    assert check.usable is False
    assert "no answer within" in check.detail
