"""The images' files as Docker reads them, and their RUN instructions carried out here.

There is no engine here: a build happens in one directory that stands for the image's `/`.
"""

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[1]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))

ONLY_INSIDE = ("groupadd", "useradd")
"""A RUN instruction with one of them changes the image's users, and is not carried out here."""

_ABSOLUTE = re.compile(r"(?<![\w./-])/(?=(?:opt|source|wheels|models|home)\b)")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


@dataclass(frozen=True)
class Instruction:
    """`word value`, with the options (`--from=x`) taken off the value."""

    word: str
    value: str
    options: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        """The value's words; those of a JSON array where it is one (the exec form)."""
        return json.loads(self.value) if self.value.startswith("[") else shlex.split(self.value)


@dataclass
class Stage:
    """`FROM image AS name` and what follows."""

    name: str
    image: str
    instructions: list[Instruction] = field(default_factory=list)

    def all(self, word: str) -> list[Instruction]:
        return [each for each in self.instructions if each.word == word]

    def last(self, word: str) -> Instruction | None:
        return next(iter(reversed(self.all(word))), None)


@dataclass
class Dockerfile:
    path: Path
    arguments: dict[str, str]  # ARG before the first FROM
    stages: list[Stage]

    @property
    def final(self) -> Stage:
        return self.stages[-1]

    def lineage(self, stage: Stage) -> list[Stage]:
        """A stage after those it is built on, the first one first."""
        below = [each for each in self.stages if each.name and each.name == stage.image]
        return [*(self.lineage(below[0]) if below else []), stage]

    def base(self, stage: Stage) -> str:
        """The image that a stage comes from in the end."""
        return self.lineage(stage)[0].image

    def environment(self, stage: Stage) -> dict[str, str]:
        """ENV of a stage and those below it, as written."""
        found: dict[str, str] = {}
        for each in self.lineage(stage):
            for instruction in each.all("ENV"):
                found.update(word.split("=", 1) for word in instruction.words)
        return found


def read(path: Path) -> Dockerfile:
    """Parse a Dockerfile."""
    parser = DockerfileParser(fileobj=io.BytesIO(path.read_bytes()))
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for told in parser.structure:
        if told["instruction"] == "COMMENT":
            continue
        made = _instruction(told["instruction"], told["value"])
        if made.word == "FROM":
            words = made.value.split()
            image = _VARIABLE.sub(lambda found: arguments[found[1] or found[2]], words[0])
            stages.append(Stage(words[2] if len(words) > 1 else "", image))
        elif stages:
            stages[-1].instructions.append(made)
        else:
            assert made.word == "ARG", made
            name, _, default = made.value.partition("=")
            arguments[name] = default
    return Dockerfile(path, arguments, stages)


def _instruction(word: str, value: str) -> Instruction:
    options = {}
    while found := re.match(r"--([\w-]+)=(\S+)\s+", value):
        options[found[1]] = found[2]
        value = value[found.end() :]
    return Instruction(word, value.strip(), options)


@cache
def context() -> dict[str, Path]:
    """Every file that Docker is sent, by its path in the build context, after .dockerignore."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [
        re.sub(r"^(!?)/", r"\1", line.strip())  # a slash in front changes nothing for Docker
        for line in lines
        if line.strip() and not line.startswith("#")
    ]
    return dict(sorted(_walk(ROOT, rules)))


def _walk(directory: Path, rules: list[str]) -> Iterator[tuple[str, Path]]:
    for path in directory.iterdir():
        name = path.relative_to(ROOT).as_posix()
        if path.is_dir() and not path.is_symlink():
            # Docker, too, enters an ignored directory only where a rule may bring parts back.
            if not ignored(name, rules) or any(
                rule.startswith(("!**", f"!{name}/")) for rule in rules
            ):
                yield from _walk(path, rules)
        elif not ignored(name, rules):
            yield name, path


def ignored(name: str, rules: list[str]) -> bool:
    """Whether .dockerignore leaves a file out: the last rule that fits it or a parent decides."""
    parts = name.split("/")
    places = ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
    left_out = False
    for rule in rules:
        pattern = _pattern(rule.removeprefix("!").strip("/"))
        if any(pattern.fullmatch(place) for place in places):
            left_out = not rule.startswith("!")
    return left_out


@cache
def _pattern(rule: str) -> re.Pattern[str]:
    made = ""
    for piece in re.split(r"(\*\*/?|\*|\?|\[[^\]]*\])", rule):
        if piece.startswith("**"):
            made += "(?:.*/)?" if piece.endswith("/") else ".*"
        elif piece in ("*", "?"):
            made += {"*": "[^/]*", "?": "[^/]"}[piece]
        elif piece.startswith("["):
            made += piece
        else:
            made += re.escape(piece)
    return re.compile(made)


def copied(source: str) -> list[str]:
    """Files of the context that a COPY source stands for."""
    found = _pattern(source.removeprefix("./").strip("/"))
    return [
        name
        for name in context()
        if found.fullmatch(name)
        or any(found.fullmatch(str(place)) for place in Path(name).parents if str(place) != ".")
    ]


@dataclass
class Built:
    """What a build has left, in a directory that stands for `/`."""

    root: Path
    python: Path  # the environment that stands for the interpreter of the base images
    environment: dict[str, str]  # of the final stage, as a process inside would have it
    skipped: list[str]  # RUN instructions that were not carried out

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the image; absolute paths in it are the image's."""
        return subprocess.run(
            [inside(word, self.root) for word in command],
            cwd=self.root,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
        )


def inside(text: str, root: Path) -> str:
    """The image's absolute paths, as places under the directory that stands for `/`."""
    return _ABSOLUTE.sub(f"{root}/", text)


def build(path: Path, place: Path) -> Built:
    """Carry out COPY and RUN of all stages; the interpreter stands for that of the base images.

    Stages share one directory, since virtual environments cannot be moved; `/source` is emptied
    between them, so that no stage finds what only another one has copied.
    """
    dockerfile = read(path)
    root = place / "root"
    (root / "models").mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", place / "python"], check=True)
    built = Built(root, place / "python", {}, [])
    for stage in dockerfile.stages:
        shutil.rmtree(root / "source", ignore_errors=True)
        told = dockerfile.environment(stage)
        built.environment = _environment(told, root, place / "python" / "bin")
        workdir = root
        for each in stage.instructions:
            if each.word == "WORKDIR":
                workdir = Path(inside(each.value, root))
                workdir.mkdir(parents=True, exist_ok=True)
            elif each.word == "COPY":
                _copy(each, root, workdir)
            elif each.word == "RUN":
                _run(each, built, workdir)
    return built


def _environment(told: Mapping[str, str], root: Path, python: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "HTTP", "http", "SSL_", "no_proxy", "NO_PROXY", "LANG"))
    }
    ours = {**kept, "PATH": f"{python}:/usr/bin:/bin", "HOME": str(root)}
    for name, value in told.items():
        if name != "PIP_NO_CACHE_DIR":  # a cache changes nothing but the time
            filled = _VARIABLE.sub(lambda found: ours.get(found[1] or found[2], ""), value)
            ours[name] = ":".join(inside(part, root) for part in filled.split(":"))
    ours.pop("PYTHONHOME", None)
    return ours


def _copy(instruction: Instruction, root: Path, workdir: Path) -> None:
    *sources, target = instruction.words
    if "from" in instruction.options:
        assert sources == [target], f"stages share one directory here: {instruction}"
        assert Path(inside(target, root)).exists(), f"no stage has made {target}"
        return
    place = workdir / inside(target, root)
    for source in sources:
        files = copied(source)
        assert files, f"COPY {source}: nothing in the context"
        for name in files:
            single = name == source
            beside = Path(name).name if single else Path(name).relative_to(source)
            whole = place / beside if target.endswith("/") or not single else place
            whole.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(context()[name], whole)


def _run(instruction: Instruction, built: Built, workdir: Path) -> None:
    if any(re.search(rf"\b{word}\b", instruction.value) for word in ONLY_INSIDE):
        built.skipped.append(instruction.value)
        return
    done = subprocess.run(
        ["/bin/sh", "-ec", inside(instruction.value, built.root)],
        cwd=workdir,
        env=built.environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"RUN {instruction.value}\n{done.stdout}\n{done.stderr}"
