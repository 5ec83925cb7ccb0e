"""What the images' files say, checked without an engine."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docker_files import DOCKER, DOCKERFILES, ROOT, Dockerfile, context, copied, ignored, read
from drut import settings
from drut_export.triton_releases import LAST, RELEASES

HADOLINT = Path(sys.executable).with_name("hadolint")
FIRST_WITH_OUR_PYTHON = (24, 12)
EXTRAS = {"cpu": ("cpu", "lang", "triton"), "cuda": ("gpu", "lang", "triton"), "triton": ()}

each_file = pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
each_sdk = pytest.mark.parametrize("name", ["cpu.Dockerfile", "cuda.Dockerfile"])


def project() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def package(requirement: str) -> str:
    """The package's name alone, in one spelling."""
    return re.split(r"[\[<>=!~ ;]", requirement)[0].lower().replace("_", "-")


def pins(path: Path) -> dict[str, str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    split = [line.partition("==") for line in lines if "==" in line]
    return {package(name): version for name, _, version in split}


def installed(dockerfile: Dockerfile) -> list[str]:
    """What the stage `packages` installs by name."""
    (stage,) = [each for each in dockerfile.stages if each.name == "packages"]
    (run,) = [each for each in stage.all("RUN") if "pip install" in each.value]
    words = run.words[run.words.index("install") + 1 :]
    named, skip = [], False
    for word in words:
        if not skip and not word.startswith("-"):
            named.append(word)
        skip = word in ("--constraint", "--target")
    return named


def lint(path: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([HADOLINT, path], capture_output=True, text=True)


def test_there_is_a_file_for_every_image() -> None:
    assert [path.name for path in DOCKERFILES] == [
        "cpu.Dockerfile",
        "cuda.Dockerfile",
        "triton.Dockerfile",
    ]


@each_file
def test_the_linter_finds_nothing(path: Path) -> None:
    done = lint(path)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_linter_finds_what_is_wrong(tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text(
        (DOCKER / "cpu.Dockerfile").read_text().replace("USER 10001:10001", "USER root")
    )
    broken.write_text(broken.read_text() + "RUN cd /tmp && sudo true\n")
    done = lint(broken)
    assert done.returncode == 1
    assert {"DL3002", "DL3003", "DL3004"} <= set(re.findall(r"DL\d+", done.stdout))


@each_file
def test_bases_are_pinned_by_tag_and_can_be_given_by_digest(path: Path) -> None:
    dockerfile = read(path)
    bases = {dockerfile.base(stage) for stage in dockerfile.stages}
    assert bases == set(dockerfile.arguments.values())  # so each one has a build argument
    for image in bases:
        tag = image.rpartition(":")[2]
        assert re.match(r"\d+\.\d+", tag), image
        assert "@" not in image  # a digest that nobody has looked up


@each_file
def test_everything_that_is_copied_is_in_the_context(path: Path) -> None:
    sources = [
        source
        for stage in read(path).stages
        for each in stage.all("COPY")
        if "from" not in each.options
        for source in each.words[:-1]
    ]
    assert sources
    assert [source for source in sources if not copied(source)] == []


@each_file
def test_stages_copy_from_stages_that_came_before(path: Path) -> None:
    before: set[str] = set()
    for stage in read(path).stages:
        for each in stage.instructions:
            mount = re.search(r"from=(\w+)", each.options.get("mount", ""))
            for wanted in filter(None, (each.options.get("from"), mount and mount[1])):
                assert wanted in before, each
        before.add(stage.name)


def test_the_context_holds_what_some_image_takes_and_nothing_else() -> None:
    taken = {
        name
        for path in DOCKERFILES
        for stage in read(path).stages
        for each in stage.all("COPY")
        if "from" not in each.options
        for source in each.words[:-1]
        for name in copied(source)
    }
    assert set(context()) == taken
    assert sum(path.stat().st_size for path in context().values()) < 30e6


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        (["*", "!src"], "src/drut/agent.py", False),
        (["*", "!src"], "tests/a.py", True),
        (["*", "!src", "**/*.py[cod]"], "src/drut/a.pyc", True),
        (["*", "!src", "**/*.py[cod]"], "src/drut/a.py", False),
        (["**/__pycache__"], "src/__pycache__/a.txt", True),
        (["**/__pycache__"], "__pycache__/a.txt", True),
        (["*", "!docker/*.py"], "docker/kubernetes/a.py", True),
        (["**/.*"], "model_repository/.partial/model.onnx", True),
    ],
)
def test_ignore_rules_are_read_as_docker_reads_them(
    rules: list[str], name: str, expected: bool
) -> None:
    assert ignored(name, rules) is expected


@each_file
def test_processes_are_nobody_special_and_hear_signals(path: Path) -> None:
    final = read(path).final
    user = final.last("USER")
    assert user is not None
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user.value)
    after = final.instructions[final.instructions.index(user) :]
    assert not [each for each in after if each.word in ("RUN", "COPY", "ADD")]
    assert final.last("STOPSIGNAL")
    assert final.last("CMD")
    for each in [*final.all("CMD"), *final.all("ENTRYPOINT")]:
        assert each.value.startswith("["), each


@each_file
def test_health_is_asked_in_exec_form_and_in_time(path: Path) -> None:
    health = read(path).final.last("HEALTHCHECK")
    assert health is not None
    assert health.value.startswith('CMD ["')
    assert {"interval", "timeout", "start-period"} <= set(health.options)


@each_file
def test_every_install_is_held_to_the_constraints(path: Path) -> None:
    for stage in read(path).stages:
        for run in stage.all("RUN"):
            for command in run.value.split("&&"):
                if re.search(r"pip (install|wheel)", command):
                    assert "--constraint" in command or "--no-deps" in command, command


@each_file
def test_the_packages_are_those_that_drut_asks_for(path: Path) -> None:
    told = project()
    wanted = list(told["dependencies"])  # type: ignore[call-overload]
    for extra in EXTRAS[path.stem]:
        wanted += told["optional-dependencies"][extra]  # type: ignore[index]
    found = installed(read(path))
    assert sorted(map(package, found)) == sorted(map(package, wanted))
    extras = {package(each): re.findall(r"\[(.*)\]", each) for each in wanted}
    assert {package(each): re.findall(r"\[(.*)\]", each) for each in found} == extras


@each_file
def test_every_package_has_one_version(path: Path) -> None:
    ours, cuda = pins(ROOT / "constraints.txt"), pins(DOCKER / "constraints-cuda.txt")
    assert not ours.keys() & cuda.keys()
    for each in installed(read(path)):
        assert "==" in each or package(each) in ours | cuda, each


@each_file
def test_no_image_holds_a_secret_or_an_unknown_variable(path: Path) -> None:
    dockerfile = read(path)
    known = Path(settings.__file__).read_text(encoding="utf-8")
    for stage in dockerfile.stages:
        given = [*dockerfile.environment(stage), *(each.value for each in stage.all("ARG"))]
        for name in [*given, *dockerfile.arguments]:
            assert not re.search(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|API_?KEY", name), name
            assert not name.startswith("DRUT_") or f'"{name}"' in known, name


@each_sdk
def test_the_two_sdks_differ_in_their_engine_alone(name: str) -> None:
    dockerfile = read(DOCKER / name)
    final = dockerfile.final
    assert final.last("ENTRYPOINT").words == ["drut"]  # type: ignore[union-attr]
    # Python as process 1 has no handler for SIGTERM, and the kernel then drops it.
    assert final.last("STOPSIGNAL").value == "SIGINT"  # type: ignore[union-attr]
    other = read(DOCKER / "cpu.Dockerfile").final
    assert [each for each in final.instructions if each.word != "ENV"] == [
        each for each in other.instructions if each.word != "ENV"
    ]


def test_triton_has_our_python_and_an_engine_that_reads_the_starter() -> None:
    dockerfile = read(DOCKER / "triton.Dockerfile")
    found = re.search(r"/tritonserver:(\d\d)\.(\d\d)-py3$", dockerfile.base(dockerfile.final))
    assert found
    tag = (int(found[1]), int(found[2]))
    assert FIRST_WITH_OUR_PYTHON <= tag <= LAST
    release = [each for each in RELEASES if each.since <= tag][-1]
    manifest = ROOT / "model_repository" / "starter" / "1" / "manifest.json"
    told = json.loads(manifest.read_text(encoding="utf-8"))
    assert told["opset"] <= release.opset
    assert told["ir_version"] <= release.ir_version


def test_triton_gets_the_numpy_that_its_backend_reads() -> None:
    triton = read(DOCKER / "triton.Dockerfile")
    made = (ROOT / "Makefile").read_text(encoding="utf-8")
    (numpy,) = [each for each in installed(triton) if package(each) == "numpy"]
    assert f"'{numpy}'" in made  # the one that the tests' own server has


def test_the_server_is_told_the_ports_that_the_image_names() -> None:
    final = read(DOCKER / "triton.Dockerfile").final
    command = final.last("CMD").words  # type: ignore[union-attr]
    ports = [each.partition("=")[2] for each in command if "-port=" in each]
    assert ports == final.last("EXPOSE").words  # type: ignore[union-attr]
    health = final.last("HEALTHCHECK").value  # type: ignore[union-attr]
    assert f"http://127.0.0.1:{ports[0]}" in health
    assert any(each.startswith("--exit-timeout-secs=") for each in command)
