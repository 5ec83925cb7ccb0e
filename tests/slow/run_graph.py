"""Run a graph on saved batches with any ONNX Runtime; needs nothing else than NumPy.

python run_graph.py GRAPH INPUTS OUTPUTS, where both files are NumPy archives.
"""

import sys

import numpy as np
import onnxruntime

graph, inputs, outputs = sys.argv[1:]
session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
given = np.load(inputs)
made = {"version": np.array(onnxruntime.__version__)}
for case in sorted({name.split("/")[0] for name in given}):
    feed = {name.split("/")[1]: given[name] for name in given if name.split("/")[0] == case}
    for output, value in zip(session.get_outputs(), session.run(None, feed), strict=True):
        made[f"{case}/{output.name}"] = value
np.savez(outputs, **made)
