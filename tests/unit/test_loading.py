import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import drut
from bundles import sha256, write_bundle
from drut.checkpoint.opened import Checkpoint
from drut.errors import (
    CheckpointFormatError,
    CheckpointNotFoundError,
    DeviceUnavailableError,
    DigestMismatchError,
    GraphContractError,
    InvalidHookError,
    InvalidRequestError,
    InvalidTypeError,
    RuntimeClosedError,
)
from drut.loading import Agent, available_bundles, load, open_by_name
from drut.runtimes.fake import FakeRuntime
from drut.runtimes.opening import open_runtime
from tiny_checkpoint import ALL, NOUL, TINY_PARALLEL, checkpoint, config, copy_of_tiny


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No repository, variable or directory of this machine is seen."""
    for name in list(os.environ):
        if name.startswith("DRUT_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("DRUT_DEVICE", "cpu")
    monkeypatch.setenv("DRUT_THREADS", "1")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


def plain(**changes: Any) -> Checkpoint:
    """The tiny checkpoint with temperatures that need no warning."""
    return checkpoint(temperature_by_options={}, **changes)


def edit_manifest(directory: Path, **changes: Any) -> None:
    path = directory / "manifest.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")


def test_a_bundle_is_found_by_name_and_answers(repository: Path):
    write_bundle(repository, "tiny")
    agent = load("tiny", model_repository=repository)
    assert agent.model_id == "tiny"
    assert agent.device == "cpu"
    assert agent.requested_device == "cpu"
    result = agent.predict("I was charged twice", ALL)
    assert result["answers"].keys() == ALL.keys()
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@pytest.mark.parametrize("form", ["text", "path", "version", "relative", "home"])
def test_a_bundle_is_found_by_its_directory(
    repository: Path, monkeypatch: pytest.MonkeyPatch, form: str
):
    directory = write_bundle(repository, "tiny")
    monkeypatch.setenv("HOME", str(repository.parent))
    asked: Any = {
        "text": str(directory.parent),
        "path": directory.parent,
        "version": str(directory),
        "relative": "../repository/tiny",
        "home": "~/repository/tiny",
    }[form]
    assert open_by_name(asked).config.max_len == 256


def test_a_bare_name_may_also_be_a_directory_here(repository: Path):
    write_bundle(Path.cwd(), "mine")
    assert open_by_name("mine").directory == Path("mine/1")
    write_bundle(Path("model_repository"), "mine", 2)
    assert open_by_name("mine").directory == Path("model_repository/mine/2")


def test_repositories_are_searched_in_order(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
):
    places = [
        repository,
        tmp_path / "named",
        Path("model_repository"),
        tmp_path / "data" / "drut" / "model_repository",
    ]
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(places[1]))
    for version, place in reversed(list(enumerate(places, start=1))):
        directory = write_bundle(place, "tiny", version)
        assert open_by_name("tiny", repository).directory == directory


def test_the_highest_version_is_opened_unless_one_is_named(repository: Path):
    for version in (1, 2, 10):
        write_bundle(repository, "tiny", version)
    assert load("tiny", model_repository=repository).describe()["version"] == 10
    assert load("tiny", model_repository=repository, version=2).describe()["version"] == 2
    with pytest.raises(CheckpointNotFoundError, match="3"):
        load("tiny", model_repository=repository, version=3)


def test_a_version_in_the_path_is_not_another_one(repository: Path):
    directory = write_bundle(repository, "tiny", 1)
    with pytest.raises(CheckpointNotFoundError, match="2"):
        load(directory, version=2)


def test_an_unknown_name_is_answered_with_the_command_that_makes_it(repository: Path):
    with pytest.raises(CheckpointNotFoundError, match="drut export SOURCE --name refunds") as e:
        load("refunds", model_repository=repository)
    assert str(repository) in str(e.value)


@pytest.mark.parametrize("form", [str, Path])
def test_a_checkpoint_without_a_graph_is_answered_with_the_command_that_makes_it(
    tmp_path: Path, form: Any
):
    copy = copy_of_tiny(tmp_path / "mine")
    with pytest.raises(CheckpointNotFoundError, match=f"drut export {copy} --name mine"):
        load(form(copy))


def test_a_hub_id_is_answered_with_the_command_that_makes_it():
    with pytest.raises(CheckpointNotFoundError, match="drut export org/name --name"):
        load("org/name")


def test_graphs_without_a_manifest_are_listed_and_none_is_guessed(tmp_path: Path):
    directory = tmp_path / "graphs"
    directory.mkdir()
    for name in ("model.onnx", "model_int8.onnx"):
        (directory / name).touch()
    with pytest.raises(CheckpointFormatError, match=r"model\.onnx, model_int8\.onnx"):
        load(directory)


@pytest.mark.parametrize("name", ["", "  ", None, 5, b"tiny", ["tiny"]])
def test_a_name_is_text_or_a_path(name: Any):
    with pytest.raises((InvalidTypeError, InvalidRequestError)):
        load(name)


@pytest.mark.parametrize(
    "name", ["~nosuchuser/tiny", "x" * 5000, "nul\0l", "../..", "a\\b"], ids=ascii
)
def test_an_odd_name_is_simply_not_found(name: str):
    with pytest.raises((CheckpointNotFoundError, CheckpointFormatError)):
        load(name)


def test_a_missing_part_is_named_before_the_graph_is_opened(repository: Path):
    directory = write_bundle(repository)
    (directory / "model.onnx").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"model\.onnx"):
        load("tiny", model_repository=repository)


def test_the_graph_of_the_manifest_is_opened_and_no_other(repository: Path):
    directory = write_bundle(repository, graph="model_fp16.onnx", precision="fp16", files={})
    (directory / "model.onnx").rename(directory / "model_fp16.onnx")
    (directory / "model.onnx").write_bytes(b"not this one")
    facts = load("tiny", model_repository=repository).describe()
    assert (facts["file"], facts["precision"]) == ("model_fp16.onnx", "fp16")


def test_another_tokenizer_than_the_graphs_is_refused(repository: Path):
    directory = write_bundle(repository)
    edit_manifest(directory, tokenizer_sha256="0" * 64)
    with pytest.raises(GraphContractError, match=r"tokenizer.*0000"):
        load("tiny", model_repository=repository)
    edit_manifest(directory, tokenizer_sha256=None)
    assert load("tiny", model_repository=repository)


def test_a_bundle_keeps_its_revision(repository: Path):
    write_bundle(repository, revision="abc")
    assert load("tiny", model_repository=repository).revision == "abc"


def test_digests_that_match_pass(repository: Path):
    directory = write_bundle(repository)
    digests = {"model.onnx": sha256(directory / "model.onnx").upper()}
    assert load("tiny", model_repository=repository, expected_sha256=digests)


@pytest.mark.parametrize("by", ["argument", "variable"])
@pytest.mark.parametrize(
    "name", ["rl_agent_config.json", "manifest.json", "tokenizer/tokenizer.json", "model.onnx"]
)
def test_digests_are_checked_before_anything_is_parsed(
    repository: Path, monkeypatch: pytest.MonkeyPatch, name: str, by: str
):
    directory = write_bundle(repository)
    (directory / name).write_bytes(b"tampered")
    digests = {name: "0" * 64}
    if by == "variable":
        monkeypatch.setenv("DRUT_SHA256_DIGESTS", json.dumps(digests))
    with pytest.raises(DigestMismatchError, match=name):
        load(
            "tiny",
            model_repository=repository,
            expected_sha256=digests if by == "argument" else None,
        )


def test_the_argument_goes_before_the_variable(repository: Path, monkeypatch: pytest.MonkeyPatch):
    write_bundle(repository)
    monkeypatch.setenv("DRUT_SHA256_DIGESTS", '{"model.onnx": "00"}')
    assert load("tiny", model_repository=repository, expected_sha256={})
    with pytest.raises(DigestMismatchError):
        load("tiny", model_repository=repository)


def test_a_graph_of_the_other_layout_is_refused(repository: Path):
    write_bundle(repository, "wrong", source=TINY_PARALLEL)
    with pytest.raises(GraphContractError, match=r"'parallel'.*lacks"):
        load("wrong", model_repository=repository)
    write_bundle(repository, "wrong too", parallel=True)
    with pytest.raises(GraphContractError, match=r"'sequential'.*has"):
        load("wrong too", model_repository=repository)


def test_a_parallel_bundle_answers(repository: Path):
    write_bundle(repository, source=TINY_PARALLEL, parallel=True)
    assert load("tiny", model_repository=repository).predict("x", ALL)["answers"]


def test_an_opened_checkpoint_and_a_runtime_object_are_taken():
    runtime = FakeRuntime()
    agent = Agent(plain(), runtime=runtime)
    assert agent.runtime is runtime
    assert agent.predict("x", NOUL)["answers"]["urgent"]["noul"] == 0.6225
    assert len(runtime.batches) == 1
    assert agent.describe()["file"] is None


@pytest.mark.parametrize("runtime", [None, 5, object(), FakeRuntime, ["ort"]])
def test_what_is_no_runtime_is_refused(runtime: Any):
    with pytest.raises(InvalidTypeError, match="runtime"):
        Agent(plain(), runtime=runtime)


@pytest.mark.parametrize("runtime", ["onnx", "torch", "", "ONNXRUNTIME"])
def test_an_unknown_runtime_is_refused(runtime: Any):
    with pytest.raises(InvalidRequestError, match="unknown runtime"):
        Agent(plain(), runtime=runtime)


def test_a_checkpoint_without_a_bundle_has_no_graph_to_run():
    with pytest.raises(CheckpointNotFoundError, match="drut export"):
        open_runtime("onnxruntime", plain())


def test_a_runtime_of_the_other_layout_is_refused():
    with pytest.raises(GraphContractError):
        Agent(plain(), runtime=FakeRuntime(parallel=True))
    assert Agent(plain(option_layout="parallel"), runtime=FakeRuntime(parallel=True))


def test_device_and_threads_come_from_the_arguments_or_the_variables(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    write_bundle(repository)
    monkeypatch.setenv("DRUT_THREADS", "2")
    agent = load("tiny", model_repository=repository)
    assert agent.requested_device == "cpu"
    assert agent.runtime.info.details["threads"] == 2
    named = load("tiny", device="CPU", model_repository=repository, threads=1)
    assert named.runtime.info.details["threads"] == 1
    monkeypatch.setenv("DRUT_DEVICE", "quantum")
    with pytest.raises(InvalidRequestError, match="quantum"):
        load("tiny", model_repository=repository)
    monkeypatch.setenv("DRUT_THREADS", "none")
    with pytest.raises(InvalidRequestError, match="DRUT_THREADS"):
        load("tiny", device="cpu", model_repository=repository)


def test_a_named_device_that_is_not_there_is_an_error(repository: Path):
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime knows CUDA")
    write_bundle(repository)
    with pytest.raises(DeviceUnavailableError, match="CUDA"):
        load("tiny", device="cuda", model_repository=repository)


def test_session_options_and_providers_reach_the_runtime(repository: Path):
    write_bundle(repository)
    seen: list[Any] = []
    agent = load(
        "tiny",
        model_repository=repository,
        providers=["CPUExecutionProvider"],
        provider_options={"CPUExecutionProvider": {}},
        session_options=seen.append,
    )
    assert len(seen) == 1
    assert agent.runtime.info.details["providers"] == ["CPUExecutionProvider"]


def passes_of(agent: Agent, count: int) -> int:
    """Forward passes that so many states of one length take."""
    before = agent.statistics()["passes"]
    agent.predict_batch([f"state {index % 10} {index // 10}" for index in range(count)], NOUL)
    return int(agent.statistics()["passes"]) - before


def test_the_arguments_about_passes_reach_the_plan(repository: Path):
    write_bundle(repository)

    def opened(**options: Any) -> Agent:
        return load("tiny", device="cpu", model_repository=repository, **options)

    assert passes_of(opened(threads=1), 12) == 1
    assert passes_of(opened(threads=1, max_batch_tokens=1), 12) == 12
    assert passes_of(opened(threads=1, concurrent_passes=3), 12) == 3
    assert passes_of(opened(threads=1, concurrent_passes=3, queue=False), 12) == 1


def test_memory_options_reach_onnx_runtime(repository: Path):
    write_bundle(repository)
    shrinking = load("tiny", device="cpu", model_repository=repository, shrink_memory=True)
    plain_one = load("tiny", device="cpu", model_repository=repository)
    assert shrinking.predict("x", NOUL) == plain_one.predict("x", NOUL)
    with pytest.raises(InvalidRequestError, match="memory_limit_mb bounds"):
        load("tiny", device="cpu", model_repository=repository, memory_limit_mb=100)


def test_calibration_arguments_reach_the_agent(tmp_path: Path):
    path = tmp_path / "calibration.json"
    path.write_text('{"temperature": [1.0, 1.0, 4.0]}', encoding="utf-8")
    agent = Agent(
        plain(),
        runtime=FakeRuntime(),
        calibration=path,
        lang_temperatures={"de": {"temperature": [1.0, 1.0, 0.5]}},
    )
    assert agent.calibration.temperature("noul", 2) == 4.0
    assert agent.calibration.temperature("noul", 2, "de") == 0.5
    plainly = agent.predict("x", NOUL)["answers"]["urgent"]["noul"]
    assert agent.predict("x", NOUL, lang="de")["answers"]["urgent"]["noul"] > plainly


def test_a_calibration_file_is_compared_with_the_opened_bundle(repository: Path, tmp_path: Path):
    write_bundle(repository)
    bound = {"graph_sha256": "0" * 64, "tokenizer_sha256": "0" * 64}
    path = tmp_path / "calibration.json"
    path.write_text(json.dumps({"temperature": [1.0, 1.0, 4.0], "bundle": bound}))
    options: dict[str, Any] = {"model_repository": repository, "calibration": path}
    with pytest.raises(DigestMismatchError, match="fitted for bundle"):
        load("tiny", runtime=FakeRuntime(), **options)
    agent = load("tiny", runtime=FakeRuntime(), calibration_any_graph=True, **options)
    assert agent.calibration.temperature("noul", 2) == 4.0


def test_raw_logits_run_no_hook():
    def refuse(ctx: Any) -> None:
        raise AssertionError("no hook is called")

    agent = Agent(plain(), runtime=FakeRuntime(), on_predict_start=refuse)
    assert agent.logits(["x", "y"], NOUL)["urgent"].tolist() == [[0.0, 1.0]] * 2


def test_temperatures_out_of_range_are_told_when_the_checkpoint_is_opened():
    with pytest.warns(RuntimeWarning, match="0.1006"):
        Agent(checkpoint(), runtime=FakeRuntime())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_batch_tokens": 0}, InvalidRequestError),
        ({"max_batch_tokens": True}, InvalidTypeError),
        ({"max_batch_tokens": 1.5}, InvalidTypeError),
        ({"concurrent_passes": 0}, InvalidRequestError),
        ({"concurrent_passes": "2"}, InvalidTypeError),
        ({"max_padding": 1.5}, InvalidRequestError),
        ({"max_padding": "half"}, InvalidTypeError),
        ({"unknown_keys": "warn"}, InvalidRequestError),
        ({"hooks_timeout": -1}, InvalidRequestError),
        ({"hooks": ["no hook"]}, InvalidHookError),
        ({"calibration": "none.json"}, CheckpointNotFoundError),
        ({"lang_temperatures": {"de": 1}}, InvalidRequestError),
        ({"min_confidance": 0.5}, TypeError),
    ],
    ids=str,
)
def test_a_wrong_argument_is_found_when_the_agent_is_made(
    options: dict[str, Any], error: type[Exception]
):
    with pytest.raises(error):
        Agent(plain(), runtime=FakeRuntime(), **options)


def test_hooks_are_checked_before_the_checkpoint_is_looked_for():
    with pytest.raises(InvalidHookError):
        load("none", hooks=[object()])


def test_closing_ends_an_agent(repository: Path):
    write_bundle(repository)
    with load("tiny", model_repository=repository) as agent:
        agent.predict("x", NOUL)
    with pytest.raises(RuntimeClosedError):
        agent.predict("x", NOUL)


def test_an_agent_describes_what_it_runs(repository: Path):
    directory = write_bundle(repository, "tiny", 3, revision="abc")
    agent = load("tiny", model_repository=repository)
    assert agent.describe() == {
        "model_id": "tiny",
        "revision": "abc",
        "directory": str(directory),
        "version": 3,
        "file": "model.onnx",
        "precision": "fp32",
        "runtime": "onnxruntime",
        "device": "cpu",
        "requested_device": "cpu",
        "max_len": config().max_len,
        "head_max_len": config().head_max_len,
        "option_layout": "sequential",
    }
    assert "tiny" in repr(agent)
    json.dumps(agent.describe())


def test_bundles_are_listed_once_as_they_would_be_opened(
    repository: Path, monkeypatch: pytest.MonkeyPatch
):
    write_bundle(repository, "b", 1)
    write_bundle(repository, "b", 2)
    write_bundle(Path("model_repository"), "b", 9)
    write_bundle(Path("model_repository"), "a", 1)
    (repository / "notes.txt").touch()
    (repository / "empty").mkdir()
    listed = {bundle.name: bundle for bundle in available_bundles(repository)}
    assert {name: listed[name].version for name in ("a", "b")} == {"a": 1, "b": 2}
    for name in ("a", "b"):
        assert open_by_name(name, repository).directory == listed[name].directory


def test_a_directory_that_no_name_would_find_is_not_listed(repository: Path):
    directory = write_bundle(repository / "x", "y", 1)
    directory.rename(repository / "flat")
    names = {bundle.directory.name for bundle in available_bundles(repository)}
    assert "flat" not in names


def test_the_package_offers_loading_by_name(repository: Path):
    write_bundle(repository)
    agent = drut.load("tiny", model_repository=repository)
    assert isinstance(agent, drut.Agent)
    assert agent.predict_batch(["a", "b"], NOUL) == [
        agent.predict("a", NOUL),
        agent.predict("b", NOUL),
    ]


def test_threads_share_an_agent(repository: Path):
    from concurrent.futures import ThreadPoolExecutor

    write_bundle(repository)
    agent = load("tiny", model_repository=repository)
    states = [f"state {index} " * (1 + index % 9) for index in range(40)]
    serial = [agent.predict(state, ALL) for state in states]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda state: agent.predict(state, ALL), states)) == serial
    assert np.unique([result["answers"]["sev"]["score"] for result in serial]).size > 1


def test_nothing_is_written_into_a_bundle(repository: Path):
    directory = write_bundle(repository)
    before = {path: path.stat().st_mtime_ns for path in directory.rglob("*")}
    load("tiny", model_repository=repository).predict("x", NOUL)
    assert before == {path: path.stat().st_mtime_ns for path in directory.rglob("*")}


def test_an_agent_is_pickled_as_what_it_was_opened_with(repository: Path):
    write_bundle(repository, "tiny")
    with load("tiny", "cpu", model_repository=repository, threads=1) as agent:
        copy = pickle.loads(pickle.dumps(agent))
    with copy:
        assert copy.describe() == agent.describe()
        assert copy.runtime is not agent.runtime
        assert copy.predict("x", NOUL)["answers"].keys() == NOUL.keys()


def test_warming_up_runs_the_shapes_and_no_hook():
    runtime = FakeRuntime()

    def told(ctx: drut.PredictContext) -> None:
        raise AssertionError("a hook ran")

    with pytest.warns(RuntimeWarning, match="temperatures"):
        agent = Agent(checkpoint(), runtime=runtime, on_predict_start=told)
    assert agent.warmup([(1, 8, 2), (3, 5, 4)]) >= 0
    assert [(*batch.input_ids.shape, batch.marker_pos.shape[1]) for batch in runtime.batches] == [
        (1, 8, 2),
        (3, 5, 4),
    ]
    with pytest.raises(InvalidRequestError, match="tokens must be at least 1"):
        agent.warmup([(1, 0, 2)])


def test_session_options_of_the_callers_own_are_used_as_they_are(repository: Path):
    write_bundle(repository, "tiny")
    own = onnxruntime.SessionOptions()
    own.intra_op_num_threads = 3
    with load("tiny", "cpu", model_repository=repository, session_options=own) as agent:
        used = agent.runtime.session.get_session_options()
        assert used.intra_op_num_threads == 3
