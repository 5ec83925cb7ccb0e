import errno
import json
import re
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx
import pytest

import drut
from drut.checkpoint.bundle import Bundle, read_bundle
from drut.checkpoint.housekeeping import remove
from drut.checkpoint.integrity import check_files
from drut.checkpoint.source import sha256_of, verify_digests
from drut.errors import (
    CheckpointNotFoundError,
    DrutError,
    ExportError,
    GraphContractError,
    InvalidRequestError,
    VerificationError,
)
from drut_export import publishing, repository
from drut_export.pbtxt import GENERATED
from drut_export.repository import ExportRequest, export_checkpoint
from drut_export.trial_texts import TEXTS
from drut_export.verify_report import VerifyReport
from exports import CHECKPOINTS
from golden_values import GOLDEN
from tiny_checkpoint import TINY, copy_of_tiny
from unit.export.reports import report


def files_below(directory: Path) -> list[str]:
    return sorted(p.relative_to(directory).as_posix() for p in directory.rglob("*") if p.is_file())


def request(directory: Path, checkpoint: Path = TINY, **changes: object) -> ExportRequest:
    settings: dict[str, object] = {"name": "tiny", "repository": directory, **changes}
    return ExportRequest(checkpoint, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_bundle_is_complete(name: str, exported: Callable[[str], Bundle]) -> None:
    bundle = exported(name)
    assert files_below(bundle.directory) == [
        "VERIFICATION.md",
        "manifest.json",
        "model.onnx",
        *(["model.onnx.data"] if name == "tiny-checkpoint-128" else []),  # the one above 4 MB
        "rl_agent_config.json",
        "tokenizer/tokenizer.json",
        "tokenizer/tokenizer_config.json",
        "verification.svg",
    ]
    listed = bundle.manifest["files"]
    assert sorted(listed) == [f for f in files_below(bundle.directory) if f != "manifest.json"]
    verify_digests(bundle.directory, {path: facts["sha256"] for path, facts in listed.items()})
    for path, facts in listed.items():
        assert (bundle.directory / path).stat().st_size == facts["bytes"]
    for path in ("rl_agent_config.json", "tokenizer/tokenizer.json"):
        assert (bundle.directory / path).read_bytes() == (GOLDEN / name / path).read_bytes()


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_the_manifest_says_what_was_made_from_what(
    name: str, exported: Callable[[str], Bundle]
) -> None:
    manifest = exported(name).manifest
    expected = {
        "format": 1,
        "name": name,
        "version": 1,
        "source": name,
        "revision": None,
        "max_positions": None,
        "precision": "fp32",
        "graph": "model.onnx",
        "opset": 24,
        "ir_version": 10,
        "for": None,
        "license": None,
        "batch_invariant": True,
        "option_layout": "parallel" if "parallel" in name else "sequential",
        "actions": 2,
        "max_len": 256,
        "head_max_len": 96,
        "temperature": [1.3, 0.9, 2.0],
        "tokenizer_sha256": sha256_of(GOLDEN / name / "tokenizer" / "tokenizer.json"),
    }
    assert {key: manifest[key] for key in expected} == expected
    assert manifest["temperature_by_options"]["choice:11+"] == 0.1006
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", manifest["created"])
    assert set(manifest["tools"]) == {"torch", "transformers", "onnx", "onnxruntime", "drut"}
    verification = manifest["verification"]
    assert verification["max_probability_difference"] < 1e-4
    assert verification["equal_choices"] == 1.0
    assert verification["batches"] == 15
    assert verification["worst_row"]
    assert verification["tolerance"]["probabilities"] == 5e-4


def test_the_report_beside_the_manifest_is_about_shapes_and_texts(
    exported: Callable[[str], Bundle],
) -> None:
    directory = exported("tiny-checkpoint").directory
    report = (directory / "VERIFICATION.md").read_text(encoding="utf-8")
    assert report.startswith("# Verification of tiny-checkpoint (fp32)\n")
    assert "| 3 rows x 83 tokens x 7 options " in report
    for title in TEXTS:
        assert f"| {title} " in report
    assert "(verification.svg)" in report
    assert (directory / "verification.svg").read_text(encoding="utf-8").startswith("<svg ")


def test_versions_count_up_and_old_ones_stay(traced: Path, tmp_path: Path) -> None:
    first = export_checkpoint(request(tmp_path))
    before = files_below(first.directory)
    second = export_checkpoint(request(tmp_path))
    assert (first.version, second.version) == (1, 2)
    assert files_below(first.directory) == before
    assert export_checkpoint(request(tmp_path, version=7)).version == 7
    assert export_checkpoint(request(tmp_path)).version == 8
    assert read_bundle(tmp_path / "tiny").version == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "tiny_decision"]


def test_an_existing_version_is_never_written_to(traced: Path, tmp_path: Path) -> None:
    (tmp_path / "tiny" / "2").mkdir(parents=True)
    with pytest.raises(ExportError, match=r"2 exists already; .* \(3\)"):
        export_checkpoint(request(tmp_path, version=2))
    assert not files_below(tmp_path)


def somebody_makes(version: Path) -> Callable[[str], None]:
    """Another export ends just before this one does."""

    def progress(line: str) -> None:
        if "bundle" in line:
            version.mkdir(parents=True)
            (version / "model.onnx").write_bytes(b"theirs")

    return progress


def test_a_wanted_version_that_appears_meanwhile_is_not_written_to(
    traced: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "tiny" / "1"
    with pytest.raises(ExportError, match="meanwhile"):
        export_checkpoint(request(tmp_path, version=1), progress=somebody_makes(theirs))
    assert files_below(tmp_path) == ["tiny/1/model.onnx"]
    assert (theirs / "model.onnx").read_bytes() == b"theirs"
    assert not list(tmp_path.glob(".*"))


def test_an_export_that_wants_no_version_takes_the_next_one_that_is_free(
    traced: Path, tmp_path: Path
) -> None:
    theirs = tmp_path / "tiny" / "1"
    bundle = export_checkpoint(request(tmp_path), progress=somebody_makes(theirs))
    assert (bundle.version, bundle.manifest["version"]) == (2, 2)
    assert files_below(theirs) == ["model.onnx"]
    assert not list(tmp_path.glob(".*"))


def made_of(report: VerifyReport) -> object:
    return repository._Made(
        report, {"name": "none", "version": "0", "device": "cpu", "computing": "fp32"}, ()
    )


def test_exports_of_one_name_at_the_same_time_get_versions_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(4, timeout=60)

    def make_graph(opened: object, wanted: object, directory: Path, *_: object) -> object:
        (directory / "model.onnx").write_text(str(threading.get_ident()))
        together.wait()  # all have looked at the repository before any of them publishes
        return made_of(report())

    monkeypatch.setattr(repository, "_make_graph", make_graph)

    def export(_: int) -> tuple[int, str]:
        bundle = export_checkpoint(request(tmp_path))
        assert bundle.manifest["version"] == bundle.version
        graph = bundle.graph.read_text()
        assert graph == str(threading.get_ident())
        verify_digests(
            bundle.directory, {p: f["sha256"] for p, f in bundle.manifest["files"].items()}
        )
        return bundle.version, graph

    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(export, range(4)))
    assert sorted(version for version, _ in made) == [1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny", "tiny_decision"]
    assert (tmp_path / "tiny" / "config.pbtxt").is_file()


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../up", "-x", ".hidden", "ä", "a b", "a\n"]
)
def test_names_that_are_no_directory_names_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="cannot be the name"):
        export_checkpoint(request(tmp_path / "repository", name=name))
    assert not (tmp_path / "repository").exists()


@pytest.mark.parametrize("version", [0, -1])
def test_versions_are_positive(version: int, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="positive"):
        export_checkpoint(request(tmp_path, version=version))


def test_source_and_revision_are_recorded(traced: Path, tmp_path: Path) -> None:
    bundle = export_checkpoint(request(tmp_path, source="org/repo", revision="abc123"))
    assert (bundle.manifest["source"], bundle.manifest["revision"]) == ("org/repo", "abc123")


def test_licences_travel_with_the_bundle(traced: Path, tmp_path: Path) -> None:
    checkpoint = copy_of_tiny(tmp_path / "checkpoint")
    for name in ("LICENSE", "NOTICE.txt", "README.md"):
        (checkpoint / name).write_text(name, encoding="utf-8")
    bundle = export_checkpoint(request(tmp_path / "repository", checkpoint))
    assert {"LICENSE", "NOTICE.txt"} <= set(bundle.manifest["files"])
    assert not (bundle.directory / "README.md").exists()


def test_an_edited_config_is_left_alone_and_a_generated_one_renewed(
    traced: Path, tmp_path: Path
) -> None:
    export_checkpoint(request(tmp_path))
    pbtxt = tmp_path / "tiny" / "config.pbtxt"
    generated = pbtxt.read_text(encoding="utf-8")
    assert generated.startswith(GENERATED)
    pbtxt.write_text(generated + "# stale\n", encoding="utf-8")
    export_checkpoint(request(tmp_path))
    assert pbtxt.read_text(encoding="utf-8") == generated
    pbtxt.write_text("# mine\n", encoding="utf-8")
    export_checkpoint(request(tmp_path))
    assert pbtxt.read_text(encoding="utf-8") == "# mine\n"


def fail_on(word: str, error: BaseException) -> Callable[[str], None]:
    def progress(line: str) -> None:
        if word in line:
            raise error

    return progress


@pytest.mark.parametrize(
    ("word", "fresh"),
    [("tracing", True), ("writing the graph", True), ("3 rows", True), ("bundle", False)],
)
def test_an_interrupted_export_leaves_nothing(
    traced: Path, tmp_path: Path, word: str, fresh: bool
) -> None:
    target = tmp_path / "deep" / "repository"
    if not fresh:
        export_checkpoint(request(target))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt):
        export_checkpoint(request(target), progress=fail_on(word, KeyboardInterrupt()))
    assert sorted(tmp_path.rglob("*")) == before


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    "step", ["save_graph", "write_report", "write_manifest", "render_pbtxt", "shutil.copyfile"]
)
def test_a_full_disk_is_an_export_error_and_leaves_nothing(
    traced: Path, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"drut_export.repository.{step}", full)
    with pytest.raises(ExportError, match="No space left on device"):
        export_checkpoint(request(tmp_path / "repository"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["verification.svg", "VERIFICATION.md", "manifest.json", "pbtxt"])
def test_a_disk_that_fills_up_while_a_version_is_added_leaves_the_others_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make_graph(opened: object, wanted: object, directory: Path, *_: object) -> object:
        (directory / "model.onnx").write_bytes(b"graph")
        return made_of(report())

    monkeypatch.setattr(repository, "_make_graph", make_graph)
    export_checkpoint(request(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    write = Path.write_text

    def until_full(path: Path, text: str, **options: str) -> int:
        if path.name.endswith(name):
            write(path, text[: len(text) // 2], encoding="utf-8")
            full()
        return write(path, text, encoding="utf-8")

    monkeypatch.setattr(Path, "write_text", until_full)
    with pytest.raises(ExportError, match=r"No space left on device.*nothing was left"):
        export_checkpoint(request(tmp_path))
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    assert not list(tmp_path.glob(".*"))


def test_a_failing_rename_leaves_nothing(
    traced: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(publishing.os, "rename", refuse)
    with pytest.raises(ExportError, match="read-only"):
        export_checkpoint(request(tmp_path / "repository"))
    assert not list(tmp_path.iterdir())


def test_a_graph_that_answers_otherwise_is_not_published(traced: Path, tmp_path: Path) -> None:
    # Random weights are far from an int8 grid, and nothing trained this model to bear that.
    with pytest.raises(VerificationError, match=r"worst row: "):
        export_checkpoint(request(tmp_path / "repository", precision="int8-weights"))
    assert not list(tmp_path.iterdir())


def test_a_graph_of_other_weights_is_not_published(
    exported: Callable[[str], Bundle], tmp_path: Path, traced: Path
) -> None:
    checkpoint = copy_of_tiny(tmp_path / "checkpoint", GOLDEN / "tiny-checkpoint-128")
    with pytest.raises(VerificationError):
        export_checkpoint(request(tmp_path / "repository", checkpoint))
    assert not (tmp_path / "repository").exists()


def test_a_tokenizer_with_more_ids_than_the_encoder_is_refused(tmp_path: Path) -> None:
    checkpoint = copy_of_tiny(tmp_path / "checkpoint")
    path = checkpoint / "tokenizer" / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    last = max(content["model"]["vocab"].values())
    content["model"]["vocab"]["zzz-new"] = last + 1
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(GraphContractError, match="868 ids, the encoder only 867"):
        export_checkpoint(request(tmp_path / "repository", checkpoint))


@pytest.mark.parametrize("name", ["rl_agent_config.json", "tokenizer", "model.safetensors"])
def test_an_incomplete_checkpoint_is_refused_before_anything_is_made(
    name: str, tmp_path: Path
) -> None:
    checkpoint = copy_of_tiny(tmp_path / "checkpoint")
    (checkpoint / name).rename(tmp_path / "gone")
    with pytest.raises(CheckpointNotFoundError):
        export_checkpoint(request(tmp_path / "repository", checkpoint))
    assert not (tmp_path / "repository").exists()


def test_an_unknown_precision_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(DrutError, match="no precision"):
        export_checkpoint(request(tmp_path, tmp_path / "nowhere", precision="int4"))


def test_the_licence_is_in_the_manifest(traced: Path, tmp_path: Path) -> None:
    checkpoint = copy_of_tiny(tmp_path / "checkpoint")
    repository = tmp_path / "repository"
    assert export_checkpoint(request(repository, checkpoint)).manifest["license"] is None
    (checkpoint / "README.md").write_text("---\nlicense: apache-2.0\n---\n", encoding="utf-8")
    assert export_checkpoint(request(repository, checkpoint)).manifest["license"] == "Apache-2.0"
    named = export_checkpoint(request(repository, checkpoint, license="LicenseRef-mine"))
    assert named.manifest["license"] == "LicenseRef-mine"


def test_a_graph_for_an_older_server_is_of_its_opset_and_verified_like_any_other(
    tmp_path: Path,
) -> None:
    bundle = export_checkpoint(request(tmp_path, made_for="triton:24.10"))
    graph = onnx.load(bundle.graph)
    assert (graph.ir_version, [(each.domain, each.version) for each in graph.opset_import]) == (
        8,
        [("", 18)],
    )
    assert {node.domain for node in graph.graph.node} == {""}
    onnx.checker.check_model(graph, full_check=True)  # refuses what opset 18 does not know
    norms = [node for node in graph.graph.node if node.op_type == "LayerNormalization"]
    assert {len(node.input) for node in norms} == {3}  # ONNX Runtime 1.18 reads the third
    manifest = bundle.manifest
    assert (manifest["opset"], manifest["ir_version"], manifest["for"]) == (18, 8, "triton:24.10")
    assert manifest["verification"]["batches"] == 15
    assert manifest["batch_invariant"] is True
    assert manifest["verification"]["max_probability_difference"] < 1e-4
    questions = {"team": {"type": "choice", "instructions": "Who?", "criteria": ["a", "b", "c"]}}
    states = ["one", "two " * 60, ""]
    with silenced_load(bundle) as agent:
        together = agent.predict_batch(states, questions)
        alone = [agent.predict(state, questions) for state in states]
    assert [each["answers"] for each in together] == [each["answers"] for each in alone]


def test_an_unknown_server_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"known are triton:"):
        export_checkpoint(request(tmp_path, tmp_path / "nowhere", made_for="triton:19.01"))
    assert not list(tmp_path.iterdir())


def test_weights_in_a_second_file_travel_with_the_graph(traced: Path, tmp_path: Path) -> None:
    bundle = export_checkpoint(request(tmp_path / "here", inline_bytes=1000))
    data = bundle.directory / "model.onnx.data"
    assert data.stat().st_size > 10 * bundle.graph.stat().st_size
    listed = bundle.manifest["files"]["model.onnx.data"]
    assert listed == {"sha256": sha256_of(data), "bytes": data.stat().st_size}
    assert check_files(bundle).passed

    # The repository moves as a whole, and the version holds all that Triton has to find in it.
    (tmp_path / "here").rename(tmp_path / "there")
    moved = read_bundle(tmp_path / "there" / "tiny")
    with silenced_load(moved) as agent:
        assert agent.predict("x", {"q": {"type": "noul", "instructions": "Is it?"}})["answers"]

    data = moved.directory / "model.onnx.data"
    content = data.read_bytes()
    data.write_bytes(content[:-4] + b"\0\0\0\1")
    assert [fault.split()[0] for fault in check_files(moved).faults] == ["model.onnx.data"]
    data.unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"lacks model\.onnx\.data"):
        read_bundle(tmp_path / "there" / "tiny")
    remove(tmp_path / "there", moved.directory)
    assert not moved.directory.exists()


def silenced_load(bundle: Bundle) -> drut.Agent:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # golden temperatures are clamped
        return drut.load(bundle.directory, device="cpu")


def labelled(path: Path, lines: int = 12) -> Path:
    question = {"type": "choice", "instructions": "Who?", "criteria": ["a", "b", "c"]}
    path.write_text(
        "".join(
            json.dumps(
                {"state": f"case {i}", "questions": {"q": question}, "answers": {"q": "abc"[i % 3]}}
            )
            + "\n"
            for i in range(lines)
        ),
        encoding="utf-8",
    )
    return path


def test_the_calibration_error_is_told_where_labels_are_given(traced: Path, tmp_path: Path) -> None:
    plain = export_checkpoint(request(tmp_path / "repository"))
    assert plain.manifest["verification"]["calibration"] is None
    report = (plain.directory / "VERIFICATION.md").read_text(encoding="utf-8")
    assert "No labelled data was given, so the calibration error is not known." in report

    data = labelled(tmp_path / "mine.jsonl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # golden temperatures are clamped
        bundle = export_checkpoint(request(tmp_path / "repository", labelled=data))
    figures = bundle.manifest["verification"]["calibration"]
    assert (figures["data"], figures["answers"]) == ("mine.jsonl", 12)
    for name in ("error_before", "error", "right"):
        assert figures["graph"][name] == pytest.approx(figures["checkpoint"][name], abs=1e-4)
        assert 0 <= figures["graph"][name] <= 1
    assert figures["graph"]["error"] != figures["graph"]["error_before"]  # temperatures are not 1
    report = (bundle.directory / "VERIFICATION.md").read_text(encoding="utf-8")
    assert "| 12 labelled answers of mine.jsonl" in report
    assert "No labelled data" not in report


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot be read"), ("", "no labelled answers"), ("[]\n", r"mine\.jsonl:1")],
)
def test_labelled_data_that_cannot_be_used_is_told_before_anything_is_made(
    content: str | None, message: str, tmp_path: Path
) -> None:
    data = tmp_path / "mine.jsonl"
    if content is not None:
        data.write_text(content)
    with pytest.raises(InvalidRequestError, match=message):
        export_checkpoint(request(tmp_path / "repository", labelled=data))
    assert not (tmp_path / "repository").exists()
