"""Engines do not report to their makers: imported before an engine is.

ONNX Runtime's wheels do by default from 1.29 on, and leave an identifier in the home directory for
it; its own function for that comes too late, after the import. `ORT_DISABLE_TELEMETRY=0` lets it.
"""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # noqa: TID251 - written, not read
