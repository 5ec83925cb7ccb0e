"""Typed decisions, served fast: checkpoints exported to ONNX, answered by ONNX Runtime.

>>> import drut
>>> agent = drut.load("starter")
>>> questions = {"refund": {"type": "noul", "instructions": "Does the customer want money back?"}}
>>> agent.predict("I was charged twice, please refund me", questions)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from drut import errors

if TYPE_CHECKING:
    from drut.aio import AsyncAgent, AsyncRouter
    from drut.checkpoint.opened import Checkpoint, open_bundle, open_checkpoint
    from drut.deadlines import deadline
    from drut.hooks.context import PredictContext
    from drut.hooks.protocol import BaseHook
    from drut.loading import Agent, available_bundles, load
    from drut.presets import PRESETS, preset
    from drut.router import Router
    from drut.routing.decision import RouteDecision
    from drut.runtimes.base import Runtime, RuntimeInfo
    from drut.runtimes.fake import FakeRuntime

__all__ = [
    "PRESETS",
    "Agent",
    "AsyncAgent",
    "AsyncRouter",
    "BaseHook",
    "Checkpoint",
    "FakeRuntime",
    "PredictContext",
    "RouteDecision",
    "Router",
    "Runtime",
    "RuntimeInfo",
    "__version__",
    "available_bundles",
    "deadline",
    "errors",
    "load",
    "open_bundle",
    "open_checkpoint",
    "preset",
]

# Imported at first use, so that `import drut` costs next to nothing.
_HOMES = {
    "PRESETS": "drut.presets",
    "Agent": "drut.loading",
    "AsyncAgent": "drut.aio",
    "AsyncRouter": "drut.aio",
    "BaseHook": "drut.hooks.protocol",
    "Checkpoint": "drut.checkpoint.opened",
    "FakeRuntime": "drut.runtimes.fake",
    "PredictContext": "drut.hooks.context",
    "RouteDecision": "drut.routing.decision",
    "Router": "drut.router",
    "Runtime": "drut.runtimes.base",
    "RuntimeInfo": "drut.runtimes.base",
    "available_bundles": "drut.loading",
    "deadline": "drut.deadlines",
    "load": "drut.loading",
    "open_bundle": "drut.checkpoint.opened",
    "open_checkpoint": "drut.checkpoint.opened",
    "preset": "drut.presets",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        # Imported here: it brings parsers of mail and archives.
        from importlib import metadata

        try:
            return metadata.version("drut")
        except metadata.PackageNotFoundError:  # a source tree that was never installed
            return "0+unknown"
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drut' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
