"""What `--for` writes runs in the ONNX Runtime of the release it is for, batches included."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from drut_export.graph import build_graph, save_graph
from drut_export.torch_reference import TorchRuntime
from drut_export.trial_batches import ModelFacts, made_up_cases
from drut_export.triton_releases import PRESENT, RELEASES, TritonRelease, format_for
from small_models import BERT, random_model

ROOT = Path(__file__).parents[2]
RUN = Path(__file__).with_name("run_graph.py")

MODELS = {
    "modernbert": lambda: random_model(),
    "parallel": lambda: random_model(parallel=True),
    "bert": lambda: random_model(BERT, head_layers=1, actions=3),
}

pytestmark = pytest.mark.slow


def run(release: TritonRelease, *arguments: Path) -> subprocess.CompletedProcess[str]:
    python = ROOT / ".venvs" / f"onnxruntime-{release.onnxruntime}" / "bin" / "python"
    assert python.is_file(), f"there is no {python}; `make nightly` makes it"
    return subprocess.run([python, RUN, *arguments], capture_output=True, text=True)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.onnxruntime)
def test_a_graph_for_a_release_runs_in_its_onnx_runtime(
    release: TritonRelease, name: str, tmp_path: Path
) -> None:
    torch.set_num_threads(1)
    model = MODELS[name]()
    form = format_for("triton:{}.{:02}".format(*release.since))
    save_graph(build_graph(model, form), tmp_path)
    facts = ModelFacts(
        vocabulary=50, parallel=model.parallel, positions=40 if name == "bert" else None
    )
    batches = [case.batch for case in made_up_cases(facts)]
    feeds = {
        f"{index}/{key}": array
        for index, batch in enumerate(batches)
        for key, array in batch.feed().items()
    }
    np.savez(tmp_path / "given.npz", **feeds)
    done = run(release, *(tmp_path / each for each in ("model.onnx", "given.npz", "made.npz")))
    assert done.returncode == 0, done.stderr
    made = np.load(tmp_path / "made.npz")
    assert str(made["version"]) == release.onnxruntime
    assert max(map(len, batches)) > 1
    reference = TorchRuntime(model)
    for index, batch in enumerate(batches):
        expected = reference.forward(batch)
        for key, values in (("logits", expected.options), ("act_logits", expected.actions)):
            np.testing.assert_allclose(made[f"{index}/{key}"], values, rtol=0, atol=1e-4)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.onnxruntime)
def test_the_present_format_is_refused_there(release: TritonRelease, tmp_path: Path) -> None:
    save_graph(build_graph(random_model(), PRESENT), tmp_path)
    np.savez(tmp_path / "given.npz")
    done = run(release, *(tmp_path / each for each in ("model.onnx", "given.npz", "made.npz")))
    assert done.returncode == 1
    assert "Unsupported model IR version" in done.stderr or "opset" in done.stderr
