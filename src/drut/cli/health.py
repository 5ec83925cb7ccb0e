"""The state of this installation as data: what is here, what works, what is wrong."""

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from drut import settings
from drut.cli.found import Found, scan
from drut.cli.probe import OPENVINO, DeviceCheck, try_device
from drut.cli.server import ServerHealth, examine_server
from drut.errors import DrutError
from drut.loading import DEFAULT_CHECKPOINT
from drut.runtimes.devices import CUDA, TENSORRT, parse_device
from drut.runtimes.threads import cpu_quota, usable_cpus

ENGINES: Final = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-directml",
    "onnxruntime-openvino",
)
"""Distributions that own the same `onnxruntime` folder."""

NEEDED: Final = ("drut", "numpy", "tokenizers", "huggingface-hub", "rich")
OPTIONAL: Final = ("openvino", "tritonclient", "torch", "transformers")

Try = Callable[[Path, str], tuple[DeviceCheck, list[str]]]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong, and what to do about it."""

    what: str
    do: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A directory that is searched for bundles."""

    path: str
    exists: bool


@dataclass(frozen=True, slots=True)
class Hub:
    """Where the hub's client keeps its files, and whether it may go online."""

    cache: str
    exists: bool
    offline: bool
    endpoint: str


@dataclass(frozen=True, slots=True)
class Threads:
    """How many threads a forward pass uses on the CPU."""

    forward: int
    usable_processors: int
    machine_processors: int | None
    quota: float | None  # processors of the control group, None where there is no limit


@dataclass(frozen=True, slots=True)
class Health:
    """Everything `drut doctor` reports."""

    system: str
    versions: dict[str, str | None]  # distribution to version; None: not installed
    devices: list[DeviceCheck]
    threads: Threads
    repositories: list[Repository]
    bundles: list[Found]
    hub: Hub
    problems: list[Problem]
    server: ServerHealth | None = None  # None: no address of one is known

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready report."""
        return {
            "healthy": not self.problems,
            "problems": [asdict(each) for each in self.problems],
            "system": self.system,
            "versions": self.versions,
            "devices": [asdict(each) for each in self.devices],
            "threads": asdict(self.threads),
            "model_repositories": [asdict(each) for each in self.repositories],
            "bundles": [each.as_dict() for each in self.bundles],
            "hub": asdict(self.hub),
            "server": None if self.server is None else self.server.as_dict(),
        }


def examine(attempt: Try = try_device, *, url: str | None = None) -> Health:
    """Look at everything. Takes seconds: every device is tried with a real session.

    Args:
        attempt: tries a device.
        url: of a Triton server to look at, too; None: `DRUT_TRITON_URL`.
    """
    versions = installed_versions()
    repositories = settings.model_repositories()
    bundles = scan(repositories)
    devices, providers = check_devices(bundles, attempt)
    url = url or settings.default_triton_url()
    good = [each.bundle for each in bundles if each.bundle and not each.fault]
    server = examine_server(url, good) if url else None
    problems = [
        *_engine_problems(versions, providers),
        *_device_problems(versions, devices),
        *_bundle_problems(bundles),
        *_setting_problems(repositories),
        *_server_problems(server),
    ]
    return Health(
        system=f"Python {platform.python_version()}, {platform.platform()}",
        versions=versions,
        devices=devices,
        threads=_threads(),
        repositories=[Repository(str(path.absolute()), path.is_dir()) for path in repositories],
        bundles=bundles,
        hub=_hub(),
        problems=problems,
        server=server,
    )


def installed_versions() -> dict[str, str | None]:
    """Versions from the installed metadata; nothing is imported for it."""
    found = {name: _version(name) for name in (*NEEDED, *ENGINES, *OPTIONAL)}
    # The CPU package stands for all engines where there is none.
    absent = [name for name in ENGINES[1:] if found[name] is None]
    return {name: version for name, version in found.items() if name not in absent}


def check_devices(
    bundles: Sequence[Found], attempt: Try
) -> tuple[list[DeviceCheck], list[str] | None]:
    """Try the devices with a bundle that is here, the starter if possible.

    Returns:
        Verdicts, and the compiled execution providers; None where nothing could be tried.
    """
    good = [each.bundle for each in bundles if each.bundle and not each.fault]
    good.sort(key=lambda bundle: bundle.name != DEFAULT_CHECKPOINT)
    if not good:
        return [DeviceCheck("cpu", None, "there is no sound bundle to try it with")], None
    directory = good[0].directory
    cpu, providers = attempt(directory, "cpu")
    checks = [cpu]
    if CUDA in providers:
        checks.append(attempt(directory, "cuda:0")[0])
    else:
        checks.append(DeviceCheck("cuda:0", False, _why_no_cuda()))
    if TENSORRT in providers:
        slow = "not tried, because the first session builds an engine for minutes"
        checks.append(DeviceCheck("tensorrt:0", None, slow))
    if _version(OPENVINO) is not None:
        checks.append(attempt(directory, OPENVINO)[0])
    return checks, providers


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _why_no_cuda() -> str:
    if shutil.which("nvidia-smi"):
        return "there is an NVIDIA driver, but ONNX Runtime is built without CUDA; see drut[gpu]"
    return "ONNX Runtime is built without CUDA"


def _engine_problems(
    versions: dict[str, str | None], providers: list[str] | None
) -> Iterator[Problem]:
    engines = [name for name in ENGINES if versions.get(name)]
    if not engines:
        yield Problem("ONNX Runtime is not installed", "install drut[cpu] or drut[gpu]")
    if len(engines) > 1:
        yield Problem(
            f"{' and '.join(engines)} are both installed and overwrite each other's files",
            "uninstall all of them, then install only the one that is wanted",
        )
    elif engines == ["onnxruntime-gpu"] and providers is not None and CUDA not in providers:
        yield Problem(
            "onnxruntime-gpu is installed, but what is loaded is built without CUDA",
            "uninstall it and everything named onnxruntime, then install drut[gpu]",
        )


def _device_problems(
    versions: dict[str, str | None], devices: Sequence[DeviceCheck]
) -> Iterator[Problem]:
    usable = {each.device: each.usable for each in devices}
    for each in devices:
        if each.usable is False and each.device == "cpu":
            yield Problem(f"no session runs on the CPU: {each.detail}", "install drut[cpu] again")
        elif each.usable is False and versions.get("onnxruntime-gpu"):
            yield Problem(
                f"no session runs on {each.device}: {each.detail}",
                "install the driver, CUDA and cuDNN (drut[gpu] brings both), or use drut[cpu]",
            )
    try:
        wanted = parse_device(settings.default_device()).name
    except DrutError as exc:
        yield Problem(f"DRUT_DEVICE: {exc}", "set it to a device of the list, or unset it")
        return
    if usable.get(wanted) is False:
        yield Problem(
            f"DRUT_DEVICE asks for {wanted}, which is not usable here",
            "set it to a usable device, or unset it",
        )


def _bundle_problems(bundles: Sequence[Found]) -> Iterator[Problem]:
    for each in bundles:
        if each.fault:
            yield Problem(
                f"bundle {each.name} is damaged: {each.fault}", "export it again, or remove it"
            )
    if not bundles:
        yield Problem("there is no exported bundle", "make one: drut export SOURCE --name NAME")


def _setting_problems(repositories: Sequence[Path]) -> Iterator[Problem]:
    usual = (
        Path("model_repository"),
        settings.user_repository(),
        settings.shipped_repository(),
    )
    for path in repositories:
        if path not in usual and not path.is_dir():
            yield Problem(
                f"DRUT_MODEL_REPOSITORY names {path}, which is not a directory",
                "create it, or correct the variable",
            )
    for read in (settings.default_threads, settings.default_digests):
        try:
            read()
        except DrutError as exc:
            yield Problem(str(exc), "correct the variable, or unset it")


def _server_problems(server: ServerHealth | None) -> Iterator[Problem]:
    if server is None:
        return
    if server.fault:
        yield Problem(
            f"the Triton server cannot be used: {server.fault}",
            "start it, or correct --url or DRUT_TRITON_URL",
        )
    for each in server.models:
        if each.fits is False:
            yield Problem(
                f"the server's model {each.name} {each.version} is not the bundle here: "
                f"{each.detail}",
                "serve the bundle of this machine, or copy the server's here",
            )


def _threads() -> Threads:
    usable = usable_cpus()
    try:
        forward = settings.default_threads() or usable
    except DrutError:  # told as a problem
        forward = usable
    return Threads(forward, usable, os.cpu_count(), cpu_quota())


def _hub() -> Hub:
    from huggingface_hub import constants

    cache = Path(constants.HF_HUB_CACHE)
    return Hub(str(cache), cache.is_dir(), bool(constants.HF_HUB_OFFLINE), constants.ENDPOINT)
