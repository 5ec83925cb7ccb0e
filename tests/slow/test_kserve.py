"""KServe's manifests against the model classes that KServe publishes; needs `make kserve-env`."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venvs" / "kserve" / "bin" / "python"
MANIFESTS = ROOT / "docker" / "kubernetes" / "kserve.yaml"


def check(path: Path) -> "subprocess.CompletedProcess[str]":
    script = ROOT / "tests" / "kserve_env" / "check_manifests.py"
    return subprocess.run(
        [PYTHON, "-W", "ignore", script, path], capture_output=True, text=True, check=False
    )


def test_every_key_is_one_that_kserve_knows() -> None:
    done = check(MANIFESTS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 manifests, 0 faults\n"


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("storageUri:", "storageUrl:", "no 'storageUrl'"),
        ("    minReplicas: 2", '    minReplicas: "2"', "has to be int"),
        ("modelFormat:", "modelFormats:", "must not be `None`"),
    ],
)
def test_a_mistake_would_be_found(tmp_path: Path, right: str, wrong: str, fault: str) -> None:
    (tmp_path / "bad.yaml").write_text(MANIFESTS.read_text().replace(right, wrong))
    done = check(tmp_path / "bad.yaml")
    assert done.returncode == 1
    assert fault in done.stderr
