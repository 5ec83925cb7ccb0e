"""The compose file is one, and true to the images and files that it names."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from docker_files import DOCKER, ROOT, read
from drut import settings

TEXT = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", (DOCKER / "compose.yaml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
TRITON, SMOKE = SERVICES["triton"], SERVICES["smoke"]

each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


def command() -> dict[str, str]:
    """Options of the server in its image."""
    words = read(ROOT / TRITON["build"]["dockerfile"]).final.last("CMD").words  # type: ignore[union-attr]
    return dict(word.removeprefix("--").split("=", 1) for word in words[1:])


def test_the_specification_has_nothing_against_it() -> None:
    assert set(PyCompose.from_yaml(TEXT).service_names()) == {"triton", "smoke"}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("cap_drop", "capdrop"), ("service_healthy", "healthy"), ("40s", "forty")],
)
def test_the_specification_would_have(right: str, wrong: str) -> None:
    assert right in TEXT
    with pytest.raises(Exception, match=wrong):
        PyCompose.from_yaml(TEXT.replace(right, wrong))


@each_service
def test_what_is_built_and_mounted_is_there(service: dict[str, Any]) -> None:
    assert (DOCKER / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()
    for volume in service["volumes"]:
        place = DOCKER / volume["source"]
        assert (place / "starter" / "config.pbtxt").is_file()
        assert (place / "starter_decision" / "config.pbtxt").is_file()
        assert volume["read_only"]


@each_service
def test_services_have_no_rights_and_nothing_to_write_but_tmp(service: dict[str, Any]) -> None:
    assert service["read_only"]
    assert service["tmpfs"] == ["/tmp"]
    assert service["cap_drop"] == ["ALL"]
    assert "privileged" not in service


@each_service
def test_variables_are_ones_that_drut_reads(service: dict[str, Any]) -> None:
    known = Path(settings.__file__).read_text(encoding="utf-8")
    given = service.get("environment", {})
    names = given if isinstance(given, dict) else [each.partition("=")[0] for each in given]
    assert [name for name in names if f'"{name}"' not in known] == []


def test_models_lie_where_server_and_client_look_for_them() -> None:
    assert TRITON["volumes"][0]["target"] == command()["model-repository"]
    client = read(ROOT / SMOKE["build"]["dockerfile"])
    told = client.environment(client.final)["DRUT_MODEL_REPOSITORY"]
    assert SMOKE["volumes"][0]["target"] == told


def test_ports_are_the_servers_and_for_this_host_alone() -> None:
    ports = [command()[f"{name}-port"] for name in ("http", "grpc", "metrics")]
    assert TRITON["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]


def test_the_server_ends_by_itself_before_it_is_killed() -> None:
    assert int(TRITON["stop_grace_period"].removesuffix("s")) > int(command()["exit-timeout-secs"])


def test_the_client_waits_for_health_that_the_image_tells() -> None:
    assert SMOKE["depends_on"]["triton"]["condition"] == "service_healthy"
    assert read(ROOT / TRITON["build"]["dockerfile"]).final.last("HEALTHCHECK")


def test_the_client_asks_the_server_by_its_name_with_options_that_it_has() -> None:
    options = dict(word.removeprefix("--").split("=", 1) for word in SMOKE["command"])
    assert options == {
        "http": f"http://triton:{command()['http-port']}",
        "grpc": f"grpc://triton:{command()['grpc-port']}",
        "pid": "1",
    }
    assert SMOKE["pid"] == "service:triton"  # or process 1 would be the client itself
    interpreter, script = SMOKE["entrypoint"]
    assert interpreter == "python"
    copies = read(ROOT / SMOKE["build"]["dockerfile"]).final.all("COPY")
    (into,) = [each.words for each in copies if f"docker/{script.rpartition('/')[2]}" in each.words]
    assert script == f"{into[-1]}smoke.py"
    done = subprocess.run(
        [sys.executable, DOCKER / "smoke.py", *SMOKE["command"], "--seconds=0.001", "--json"],
        capture_output=True,
        text=True,
    )
    assert json.loads(done.stdout)["checks"][0]["passed"] is False, done.stderr
