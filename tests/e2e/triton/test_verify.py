"""`drut verify --url` against a real server."""

import json
from pathlib import Path

import pytest

from drut_export.verify_cli import main
from triton_server import TritonServer


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_starter_on_a_server_answers_like_the_starter_here(
    protocol: str, triton: TritonServer, served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = triton.url if protocol == "http" else f"grpc://{triton.grpc}"
    assert main([str(served / "starter"), "--url", url, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is found["comparison"]["passed"] is True
    assert found["comparison"]["max_logit_difference"] < 1e-4
    assert found["comparison"]["batch_invariant"] is True


def test_a_model_that_is_another_bundles_is_refused(
    triton: TritonServer, served: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(served / "starter"), "--url", triton.url, "--model", "tiny"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("drut verify: ")
    assert "Traceback" not in told
