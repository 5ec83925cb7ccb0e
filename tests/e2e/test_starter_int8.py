"""The starter, restored and exported as int8, decides like the one that ships."""

from pathlib import Path

import numpy as np
import pytest
from starter.answering import BundleAnswerer
from starter.evaluate import SETS, load_set
from starter.export import NAME, REPOSITORY
from starter.restore import restore

from drut.checkpoint.bundle import read_bundle
from drut_export.repository import ExportRequest, export_checkpoint


@pytest.mark.slow
def test_at_least_99_of_100_decisions_are_equal(tmp_path: Path) -> None:
    shipped = read_bundle(REPOSITORY / NAME)
    checkpoint = restore(shipped, tmp_path / "checkpoint")
    bundle = export_checkpoint(ExportRequest(checkpoint, "int8", tmp_path / "made", "int8"))
    items = [item for name in SETS for item in load_set(name)]
    wanted, found = (
        BundleAnswerer(each.directory).probabilities(items) for each in (shipped, bundle)
    )
    equal = [a.argmax() == b.argmax() for a, b in zip(wanted, found, strict=True)]
    assert len(equal) > 1000
    assert np.mean(equal) >= 0.99
    assert bundle.batch_invariant
