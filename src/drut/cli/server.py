"""Is a Triton server reachable, and which of the bundles here does it serve?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import open_bundle
from drut.errors import DrutError
from drut.runtimes.triton_options import TritonOptions

SECONDS: Final = 5.0
_PRIVATE: Final = "not a bundle of this machine"


@dataclass(frozen=True, slots=True)
class Served:
    """One model version of the server, and how it compares with the bundle of its name."""

    name: str
    version: str
    state: str
    detail: str
    fits: bool | None = None  # None: there was nothing to compare


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """What was found at an address."""

    url: str
    version: str | None  # None: nobody answered
    models: tuple[Served, ...] = ()
    fault: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready report."""
        return {**asdict(self), "models": [asdict(each) for each in self.models]}

    def rows(self) -> list[tuple[str, ...]]:
        """Lines of a table for people."""
        head = (self.url, "", "", self.fault or f"Triton {self.version}")
        return [head, *((each.name, each.version, each.state, each.detail) for each in self.models)]


def examine_server(url: str, bundles: Sequence[Bundle]) -> ServerHealth:
    """Ask the server, and try every model it has ready that is also a bundle here."""
    try:
        from drut.runtimes.triton_inspect import inspect_server

        report = inspect_server(TritonOptions(url, timeout=SECONDS))
    except DrutError as exc:
        return ServerHealth(url, None, fault=str(exc))
    here = {(bundle.name, str(bundle.version)): bundle for bundle in bundles}
    models = []
    for each in report.models:
        bundle = here.get((each.name, each.version))
        fits, detail = None, each.reason or _PRIVATE
        if bundle is not None:
            fits, detail = _try(url, bundle) if each.state == "READY" else (None, each.reason)
        models.append(Served(each.name, each.version, each.state or "not loaded", detail, fits))
    return ServerHealth(report.url, report.version, tuple(models))


def _try(url: str, bundle: Bundle) -> tuple[bool, str]:
    from drut.runtimes.triton import TritonRuntime

    try:
        runtime = TritonRuntime(TritonOptions(url, timeout=SECONDS), open_bundle(bundle))
    except DrutError as exc:
        return False, str(exc)
    runtime.close()
    info = runtime.info
    tokenizer = info.details["tokenizer"].partition(":")[0]
    queue = info.details["queue"]
    return True, f"fits the bundle here, on {info.device}, tokenizer {tokenizer}, queue {queue}"
