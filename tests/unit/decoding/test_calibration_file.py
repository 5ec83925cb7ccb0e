import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bundles import sha256, write_bundle
from drut.checkpoint.opened import open_bundle
from drut.decoding.calibration import Calibration, Temperatures, calibration_of, read_calibration
from drut.decoding.calibration_file import (
    calibration_payload,
    read_language_temperatures,
    write_calibration,
    write_language_temperatures,
)
from drut.decoding.identity import ModelIdentity, graph_digest, identity_of
from drut.errors import (
    CalibrationIdentityWarning,
    CheckpointFormatError,
    CheckpointNotFoundError,
    DigestMismatchError,
)
from tiny_checkpoint import checkpoint

FITTED = Calibration(Temperatures((1.25, 0.75, 2.0), {"noul:2": 1.5}), binning={"noul:2": (0.2, 1)})
OTHER = "0" * 64


def bundle_identity(directory: Path, source: str = "tiny", **manifest: Any) -> ModelIdentity:
    opened = open_bundle(write_bundle(directory, **manifest))
    assert opened.bundle is not None
    bundle = replace(opened.bundle, manifest={**opened.bundle.manifest, "source": source})
    return identity_of(replace(opened, bundle=bundle))


def test_what_is_written_is_read_again(tmp_path: Path):
    identity = bundle_identity(tmp_path / "models")
    path = write_calibration(tmp_path / "calibration.json", FITTED, identity)
    assert read_calibration(path, Calibration(), identity) == FITTED


def test_a_file_is_bound_to_the_graph_and_the_tokenizer(tmp_path: Path):
    directory = write_bundle(tmp_path, "mine", 3)
    payload = calibration_payload(FITTED, identity_of(open_bundle(directory)))
    assert payload["bundle"] == {
        "name": "mine",
        "version": 3,
        "graph_sha256": sha256(directory / "model.onnx"),
        "tokenizer_sha256": sha256(directory / "tokenizer" / "tokenizer.json"),
    }


@pytest.mark.parametrize("key", ["graph_sha256", "tokenizer_sha256"])
def test_another_graph_or_tokenizer_is_refused_unless_allowed(tmp_path: Path, key: str):
    identity = bundle_identity(tmp_path / "models")
    payload = calibration_payload(FITTED, identity)
    payload["bundle"][key] = OTHER
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(payload), encoding="utf-8")
    with pytest.raises(DigestMismatchError, match=f"fitted for bundle 'tiny'.*{OTHER}"):
        read_calibration(path, Calibration(), identity)
    assert read_calibration(path, Calibration(), identity, any_graph=True) == FITTED


def test_a_bundle_under_another_name_and_source_is_the_same_one(tmp_path: Path):
    path = tmp_path / "calibration.json"
    write_calibration(path, FITTED, bundle_identity(tmp_path / "a", source="owner/laya"))
    renamed = bundle_identity(tmp_path / "b", name="other", source="mirror/laya", version=2)
    assert read_calibration(path, Calibration(), renamed) == FITTED


@pytest.mark.parametrize("bundle", [5, [], {}, {"graph_sha256": OTHER}, {"graph_sha256": 1}])
def test_a_malformed_binding_is_refused(tmp_path: Path, bundle: Any):
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"version": 2, "temperature": [1, 1, 1], "bundle": bundle}))
    with pytest.raises(CheckpointFormatError, match="bundle must be an object"):
        read_calibration(path, Calibration(), identity_of(checkpoint()))


def test_a_bound_file_without_a_bundle_to_compare_is_told(tmp_path: Path):
    identity = bundle_identity(tmp_path / "models")
    path = write_calibration(tmp_path / "calibration.json", FITTED, identity)
    unbound = ModelIdentity(identity.model_id, None, identity.config)
    with pytest.warns(CalibrationIdentityWarning, match="no bundle is open"):
        read_calibration(path, Calibration(), unbound)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"model_id_or_path": "owner/other"}, "names 'owner/other'"),
        ({"subfolder": "multilingual"}, "subfolder 'multilingual'"),
        ({"config": {"encoder": "other"}}, "settings differ in .*encoder"),
        ({"config": None}, "settings differ"),
    ],
    ids=str,
)
def test_another_model_is_told(tmp_path: Path, change: dict[str, Any], told: str):
    identity = identity_of(checkpoint())
    path = tmp_path / "calibration.json"
    payload = calibration_payload(FITTED, identity)
    path.write_text(json.dumps({**payload, **change}), encoding="utf-8")
    with pytest.warns(CalibrationIdentityWarning, match=told):
        assert read_calibration(path, Calibration(), identity) == FITTED
    path.write_text(json.dumps({**payload, **change, "version": 1}), encoding="utf-8")
    read_calibration(path, Calibration(), identity)  # the first version does not say


def test_a_hub_source_is_repository_and_directory_as_upstream_names_them(tmp_path: Path):
    identity = bundle_identity(tmp_path, source="owner/laya/multi/lingual")
    assert (identity.model_id, identity.subfolder) == ("owner/laya", "multi/lingual")
    unbound = {**identity.as_dict(), "version": 2, "temperature": [1, 1, 1]}
    del unbound["bundle"]
    path = tmp_path / "upstream.json"
    for names in (("owner/laya", "multi/lingual"), ("tiny", None)):
        unbound |= dict(zip(("model_id_or_path", "subfolder"), names, strict=True))
        path.write_text(json.dumps(unbound), encoding="utf-8")
        read_calibration(path, Calibration(), identity)


def test_weights_beside_the_graph_count_too(tmp_path: Path):
    bundle = open_bundle(write_bundle(tmp_path)).bundle
    assert bundle is not None
    alone = graph_digest(bundle)
    for digest in (OTHER, "1" * 64):
        bundle.manifest["files"]["model.onnx.data"] = {"sha256": digest}
        assert graph_digest(bundle) not in (alone, OTHER)
        alone = graph_digest(bundle)
    del bundle.manifest["files"]["model.onnx"]
    assert graph_digest(bundle) is None


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "calibration.json"
    path.write_text("old", encoding="utf-8")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_calibration(path, FITTED, ModelIdentity("x"))
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_language_temperatures_survive_a_file(tmp_path: Path):
    fitted = {"de-AT": Temperatures((1.5, 2.0, 0.75), {"noul:2": 3.0}), "fr": Temperatures()}
    path = write_language_temperatures(tmp_path / "languages.json", fitted)
    made = calibration_of(
        checkpoint(temperature_by_options={}).config, read_language_temperatures(path)
    ).by_language
    assert made == {"de": fitted["de-AT"], "fr": fitted["fr"]}


def test_a_language_may_have_nothing_of_its_own(tmp_path: Path):
    path = tmp_path / "languages.json"
    path.write_text('{"de": null}', encoding="utf-8")
    assert read_language_temperatures(path) == {"de": None}


@pytest.mark.parametrize("content", ["[]", "5", '{"de": 1.5}', '{"de": [1, 1, 1]}', "{"])
def test_a_malformed_language_file_is_refused(tmp_path: Path, content: str):
    path = tmp_path / "languages.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointFormatError, match=r"languages\.json"):
        read_language_temperatures(path)


def test_a_missing_language_file_is_named(tmp_path: Path):
    with pytest.raises(CheckpointNotFoundError, match=r"none\.json"):
        read_language_temperatures(tmp_path / "none.json")
