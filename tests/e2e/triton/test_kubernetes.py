"""What docker/kubernetes says of the server, asked of the real one."""

import re
import subprocess
from urllib.request import urlopen

import yaml

import triton_server as servers
from triton_server import ROOT, TritonServer

PLACE = ROOT / "docker" / "kubernetes"


def test_the_rules_name_metrics_that_the_server_has(triton: TritonServer) -> None:
    with urlopen(f"http://{triton.metrics}/metrics") as answer:
        found = set(re.findall(r"^(\w+)\{", answer.read().decode(), re.MULTILINE))
    rules = yaml.safe_load((PLACE / "metrics-rules.yaml").read_text())["rules"]["custom"]
    assert rules
    for rule in rules:
        assert rule["seriesQuery"].partition("{")[0] in found


def test_the_server_has_the_options_it_is_given() -> None:
    known = subprocess.run(
        [servers._wheel() / "bin" / "tritonserver", "--help"],
        env=servers._environment(), capture_output=True, text=True, check=False, timeout=30,
    ).stderr  # fmt: skip
    texts = [(PLACE / "base/deployment.yaml").read_text(), (PLACE / "kserve.yaml").read_text()]
    options = {option for text in texts for option in re.findall(r"- (--[\w-]+)=", text)}
    assert len(options) >= 4
    for option in options:
        assert re.search(rf"{option}\b", known), option


def test_the_probes_paths_answer(triton: TritonServer) -> None:
    for name in ("base/deployment.yaml", "kserve.yaml"):
        paths = set(re.findall(r"path: (/v2/\S+)", (PLACE / name).read_text()))
        assert len(paths) == 2
        for path in paths:
            with urlopen(f"{triton.url}{path}") as answer:
                assert answer.status == 200
