"""Texts in, answers out; everything is in drut, which Triton's Python has to have installed."""

from drut.triton_model.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
