"""Rules of the architecture that a linter cannot say."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "src").rglob("*.py")) + sorted((ROOT / "export").rglob("*.py"))
IDS = [str(path.relative_to(ROOT)) for path in MODULES]


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_comments_are_no_essays(path: Path) -> None:
    longest = run = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        run = run + 1 if line.lstrip().startswith("#") else 0
        longest = max(longest, run)
    assert longest <= 3


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_modules_open_with_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_only_the_chain_calls_hooks() -> None:
    callers = {path.name for path in MODULES if re.search(r"\binvoke\(", path.read_text())}
    assert callers == {"chain.py", "invoke.py"}


def test_the_environment_is_read_in_one_place() -> None:
    readers = {
        path.name
        for path in MODULES
        if "drut_export" not in str(path) and re.search(r"os\.(environ|getenv)", path.read_text())
    }
    assert readers == {"settings.py", "telemetry.py"}  # the latter writes, for an engine


def test_import_is_light() -> None:
    heavy = (
        "torch",
        "transformers",
        "onnxruntime",
        "tritonclient",
        "huggingface_hub",
        "tokenizers",
    )
    code = f"import sys, drut, drut.errors; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plain_agent_loads_no_network_and_no_event_loop() -> None:
    unused = ("asyncio", "ssl", "email", "importlib.metadata", "huggingface_hub", "tritonclient")
    code = (
        "import sys, drut.loading, drut.runtimes.ort\n"
        f"print([m for m in {unused!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_serving_never_imports_torch_or_transformers() -> None:
    code = (
        "import sys, drut, drut.loading, drut.runtimes.ort, drut.cli.main\n"
        "print([m for m in ('torch', 'transformers', 'optimum') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
