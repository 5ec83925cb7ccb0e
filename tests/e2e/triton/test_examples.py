"""The thin clients in examples/triton do what they say against the real server."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from triton_server import ROOT, TritonServer

EXAMPLES = ROOT / "examples" / "triton"


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, timeout=60
    )


def test_curl_is_enough(triton: TritonServer) -> None:
    text = 'I was charged "twice",\nrefund me — €5'
    done = run(EXAMPLES / "ask.sh", text, triton.url)
    assert done.returncode == 0, done.stderr
    answers = json.loads(json.loads(done.stdout)["ANSWERS"])["answers"]
    assert answers["team"]["choice"] == "billing"
    assert 0 <= answers["urgent"]["noul"] <= 1


def test_curl_shows_the_servers_words_and_fails(triton: TritonServer) -> None:
    done = run(EXAMPLES / "ask.sh", "x", triton.url, "nobody_decision")
    assert done.returncode != 0
    assert "nobody_decision" in done.stdout


def test_a_client_of_tritonclient_alone_is_short(triton: TritonServer) -> None:
    script = EXAMPLES / "ask.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 60
    done = run(sys.executable, script, triton.grpc, "starter_decision")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert "-> billing" in first
    assert "-> support" in second


def test_it_needs_no_drut(triton: TritonServer) -> None:
    blocked = (
        "import sys, runpy; sys.modules['drut'] = None; sys.argv = ['ask.py', *sys.argv[2:]];"
        f"runpy.run_path({str(EXAMPLES / 'ask.py')!r}, run_name='__main__')"
    )
    done = run(sys.executable, "-c", blocked, "ask.py", triton.grpc, "starter_decision")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("->") == 2


@pytest.mark.parametrize("name", ["ask.sh", "ask.py"])
def test_each_says_how_it_is_called(name: str) -> None:
    assert f"examples/triton/{name}" in (EXAMPLES / name).read_text(encoding="utf-8")
