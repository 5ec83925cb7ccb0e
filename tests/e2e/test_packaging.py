"""The wheel, installed where there is no torch and no source tree, answers at once."""

import json
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PREDICT = """
import json, sys
import drut
agent = drut.load("starter", device="cpu")
questions = {"team": {"type": "choice", "instructions": "Which team should handle this?",
                      "criteria": ["billing", "technical support", "sales"]}}
result = agent.predict("I was charged twice for the same invoice, please refund me.", questions)
print(json.dumps({"choice": result["answers"]["team"]["choice"],
                  "where": str(agent.checkpoint.directory),
                  "torch": "torch" in sys.modules}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("drut-*.whl")
    return built


def test_wheel_holds_both_packages_the_starter_and_the_licences(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "drut/py.typed" in names
    assert "drut_export/py.typed" in names
    assert any(name.startswith("drut/model_repository/starter/1/model.onnx") for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "starter/"))]
    assert wheel.stat().st_size < 30_000_000


def test_wheel_predicts_in_a_clean_environment(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    constraints = ROOT / "constraints.txt"
    run(python, "-m", "pip", "install", "-q", "-c", constraints, f"{wheel}[cpu]", cwd=tmp_path)
    answer = json.loads(run(python, "-c", PREDICT, cwd=tmp_path))
    assert answer["choice"] == "billing"
    assert answer["torch"] is False
    assert Path(answer["where"]).is_relative_to(home)
    line = run(home / "bin" / "drut", "predict", "It crashes", "--json", cwd=tmp_path)
    assert set(json.loads(line)) >= {"answers", "usage"}
    installed = run(python, "-m", "pip", "list", "--format=freeze", cwd=tmp_path)
    assert "torch==" not in installed
    assert "transformers==" not in installed
