import json
import shutil
from pathlib import Path

import pytest

from bundles import write_bundle
from drut.cli.found import scan
from unit.cli.roomy import write_roomy_bundle


def test_a_name_is_listed_once_as_it_would_be_opened(tmp_path: Path) -> None:
    write_bundle(tmp_path / "first", "shared", 1)
    write_bundle(tmp_path / "first", "shared", 3)
    write_bundle(tmp_path / "second", "shared", 9)
    write_bundle(tmp_path / "second", "other", 1)
    found = scan([tmp_path / "first", tmp_path / "nowhere", tmp_path / "second"])
    assert [(each.name, each.versions) for each in found] == [("shared", (1, 3)), ("other", (1,))]
    assert found[0].bundle is not None
    assert found[0].bundle.version == 3
    assert [each.fault for each in found] == [None, None]


def test_facts_are_those_of_the_manifest_and_the_files(tmp_path: Path) -> None:
    directory = write_roomy_bundle(tmp_path)
    (found,) = scan([tmp_path])
    assert found.size == sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    facts = found.as_dict()
    assert facts["name"] == "starter"
    assert facts["directory"] == str(directory)
    assert facts["verification"]["equal_choices"] == 1.0
    precision, _, verification = found.facts()
    assert precision == "fp32"
    assert verification == "probabilities within 2e-06, 100.0% equal choices"
    json.dumps(facts)


def test_a_bundle_without_figures_is_not_called_verified(tmp_path: Path) -> None:
    write_bundle(tmp_path)
    (found,) = scan([tmp_path])
    assert found.facts()[2] == "not verified"


def cut_graph(directory: Path) -> None:
    (directory / "model.onnx").write_bytes(b"version https://")


def lose_graph(directory: Path) -> None:
    (directory / "model.onnx").unlink()


def break_manifest(directory: Path) -> None:
    (directory / "manifest.json").write_text("{")


def swap_tokenizer(directory: Path) -> None:
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["tokenizer_sha256"] = "0" * 64
    (directory / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (cut_graph, "model.onnx has 16 bytes, the manifest says"),
        (lose_graph, "lacks model.onnx"),
        (break_manifest, "not valid JSON"),
        (swap_tokenizer, "tokenizer"),
    ],
)
def test_a_damaged_bundle_is_found_with_its_fault_and_hides_no_other(
    tmp_path: Path, damage: object, fault: str
) -> None:
    write_bundle(tmp_path, "sound")
    damage(write_bundle(tmp_path, "broken"))  # type: ignore[operator]
    broken, sound = scan([tmp_path])
    assert broken.name == "broken"
    assert broken.fault is not None
    assert fault in broken.fault
    assert sound.fault is None


def test_what_is_no_bundle_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / "empty" / "1").mkdir(parents=True)
    shutil.copytree(write_bundle(tmp_path / "elsewhere"), tmp_path / "not" / "a-version")
    assert scan([tmp_path]) == []
