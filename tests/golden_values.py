"""Reads the golden vectors: JSON with a few tagged values that JSON cannot carry."""

import json
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "golden"


def golden_cases(name: str) -> list[dict[str, Any]]:
    """Cases of one golden file, their tagged values not yet restored."""
    return json.loads((GOLDEN / name).read_text(encoding="utf-8"))["cases"]


def restore(value: Any) -> Any:
    """Turn a decoded JSON value into the Python value it stands for."""
    if isinstance(value, list):
        return [restore(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((tag, content),) = value.items()
        if tag in _TAGS:
            return _TAGS[tag](content)
    return {key: restore(each) for key, each in value.items()}


_TAGS = {
    "__pairs__": lambda pairs: {restore(key): restore(each) for key, each in pairs},
    "__tuple__": lambda items: tuple(restore(item) for item in items),
    "__float__": float,
    "__bytes__": bytes.fromhex,
    "__str_utf16__": lambda text: bytes.fromhex(text).decode("utf-16-le", "surrogatepass"),
    "__py__": lambda _: object(),  # only its repr is known; all were values JSON cannot carry
}
