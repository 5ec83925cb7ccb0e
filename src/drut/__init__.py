"""Typed decisions, served fast: checkpoints exported to ONNX, answered by ONNX Runtime.

>>> import drut
>>> agent = drut.load("starter")
>>> questions = {"refund": {"type": "noul", "instructions": "Does the customer want money back?"}}
>>> agent.predict("I was charged twice, please refund me", questions)
"""

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from drut import errors

if TYPE_CHECKING:
    from drut.checkpoint.opened import Checkpoint, open_bundle, open_checkpoint
    from drut.hooks.context import PredictContext
    from drut.hooks.protocol import BaseHook
    from drut.loading import Agent, available_bundles, load
    from drut.runtimes.base import Runtime, RuntimeInfo
    from drut.runtimes.fake import FakeRuntime

__all__ = [
    "Agent",
    "BaseHook",
    "Checkpoint",
    "FakeRuntime",
    "PredictContext",
    "Runtime",
    "RuntimeInfo",
    "__version__",
    "available_bundles",
    "errors",
    "load",
    "open_bundle",
    "open_checkpoint",
]

# Imported at first use, so that `import drut` costs next to nothing.
_HOMES = {
    "Agent": "drut.loading",
    "BaseHook": "drut.hooks.protocol",
    "Checkpoint": "drut.checkpoint.opened",
    "FakeRuntime": "drut.runtimes.fake",
    "PredictContext": "drut.hooks.context",
    "Runtime": "drut.runtimes.base",
    "RuntimeInfo": "drut.runtimes.base",
    "available_bundles": "drut.loading",
    "load": "drut.loading",
    "open_bundle": "drut.checkpoint.opened",
    "open_checkpoint": "drut.checkpoint.opened",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("drut")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'drut' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
