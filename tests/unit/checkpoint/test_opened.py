import os
from pathlib import Path

import pytest

from bundles import write_bundle
from drut.checkpoint.bundle import read_bundle
from drut.checkpoint.opened import open_bundle, open_checkpoint
from drut.errors import CheckpointNotFoundError
from tiny_checkpoint import TINY, copy_of_tiny, tokenizer


def test_a_checkpoint_is_opened_without_its_weights(tmp_path: Path):
    copy = copy_of_tiny(tmp_path / "c")
    (copy / "model.safetensors").unlink()
    opened = open_checkpoint(copy)
    assert opened.config.max_len == 256
    assert opened.tokenizer.digest == tokenizer().digest
    assert opened.directory == copy
    assert opened.bundle is None
    assert opened.revision is None


def test_the_name_is_what_was_asked_for():
    assert open_checkpoint(TINY).model_id == str(TINY)
    named = open_checkpoint(TINY, model_id="org/tiny", revision="abc")
    assert (named.model_id, named.revision) == ("org/tiny", "abc")


def test_a_bundle_brings_its_own_name_and_revision(tmp_path: Path):
    directory = write_bundle(tmp_path, "refunds", 2, revision="abc")
    opened = open_bundle(directory)
    assert (opened.model_id, opened.revision) == ("refunds", "abc")
    assert opened.bundle is not None
    assert opened.bundle.version == 2
    assert open_bundle(read_bundle(directory), model_id="mine").model_id == "mine"


def test_a_directory_of_versions_opens_the_highest(tmp_path: Path):
    write_bundle(tmp_path, "b", 1)
    write_bundle(tmp_path, "b", 2)
    assert open_bundle(tmp_path / "b").directory == tmp_path / "b" / "2"


@pytest.mark.parametrize("missing", ["rl_agent_config.json", "tokenizer/tokenizer.json"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str):
    copy = copy_of_tiny(tmp_path / "c")
    (copy / missing).unlink()
    with pytest.raises(CheckpointNotFoundError, match=os.path.basename(missing)):
        open_checkpoint(copy)


def test_a_checkpoint_cannot_be_changed():
    with pytest.raises(AttributeError):
        open_checkpoint(TINY).model_id = "other"  # type: ignore[misc]
