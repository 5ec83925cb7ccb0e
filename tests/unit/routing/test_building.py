"""From a name to an exported bundle, and what is told where there is none."""

import json
from pathlib import Path
from typing import Any

import pytest

import drut
from bundles import write_bundle
from drut.checkpoint.source import REVIEWED_REVISIONS
from drut.errors import (
    CheckpointNotFoundError,
    DigestMismatchError,
    InvalidRequestError,
    InvalidTypeError,
)
from drut.routing.building import BuildSettings
from lifecycle_helpers import NOUL

REVIEWED = REVIEWED_REVISIONS["convaiinnovations/laya"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only model repository, empty."""
    for name in ("REVISION", "SHA256_DIGESTS", "MODEL_REPOSITORY"):
        monkeypatch.delenv(f"DRUT_{name}", raising=False)
    monkeypatch.setenv("DRUT_DEVICE", "cpu")
    monkeypatch.setenv("DRUT_THREADS", "1")
    path = tmp_path / "bundles"
    path.mkdir()
    monkeypatch.setattr("drut.settings.model_repositories", lambda: [path])
    return path


def predicted(router: drut.Router, model: str) -> Any:
    return router.predict("a", NOUL, model=model)["answers"]["n"]["type"]


def directory_of(router: drut.Router, model: str) -> str:
    return str(router.load(model).describe()["directory"])


def test_a_name_means_the_exported_bundle_of_that_name(repository: Path) -> None:
    path = write_bundle(repository, "english")
    router = drut.Router()
    assert predicted(router, "en") == "noul"
    assert directory_of(router, "en") == str(path)


def test_the_routers_own_repository_comes_first(repository: Path, tmp_path: Path) -> None:
    write_bundle(repository, "english")
    own = write_bundle(tmp_path / "own", "english")
    router = drut.Router(model_repository=tmp_path / "own")
    assert directory_of(router, "english") == str(own)


def test_own_names_open_directories_bundles_and_hub_exports(repository: Path) -> None:
    path = write_bundle(repository, "exported")
    hub = write_bundle(repository, "hub")
    models = {"by-path": path.parent, "by-name": "exported", "hub": "me/finetuned"}
    router = drut.Router(models, max_loaded=3)
    assert directory_of(router, "by-path") == directory_of(router, "by-name") == str(path)
    assert directory_of(router, "hub") == str(hub)


def test_arguments_reach_the_agent(repository: Path) -> None:
    write_bundle(repository, "english")
    router = drut.Router(device="cpu", agent_kwargs={"max_batch_tokens": 77, "threads": 1})
    assert router.load("en").requested_device == "cpu"
    assert router.load("en").statistics()["max_batch_tokens"] == 77


@pytest.mark.parametrize(
    ("name", "options", "command"),
    [
        ("english", {}, "drut export convaiinnovations/laya --revision reviewed --name english"),
        (
            "multilingual",
            {},
            "drut export convaiinnovations/laya --subfolder multilingual --revision reviewed "
            "--name multilingual",
        ),
        (
            "multilingual",
            {"standalone_repos": True},
            "drut export convaiinnovations/laya-multilingual --revision reviewed "
            "--name multilingual",
        ),
        (
            "english",
            {"revisions": {"en": " main "}, "revision": "v1"},
            "drut export convaiinnovations/laya --revision main --name english",
        ),
        (
            "english",
            {"revisions": {"en": None}, "revision": "reviewed"},
            f"drut export convaiinnovations/laya --revision {REVIEWED} --name english",
        ),
        (
            "mine",
            {"models": {"mine": ("me/repo", "a b")}},
            "drut export me/repo --subfolder 'a b' --name mine",
        ),
        ("mine", {"models": {"mine": "other"}}, "drut export SOURCE --name other"),
        ("mine", {"models": {"mine": "/not there"}}, "drut export '/not there' --name mine"),
        ("starter", {}, "drut export SOURCE --name starter"),
    ],
)
def test_without_a_bundle_the_command_that_makes_it_is_told(
    repository: Path, name: str, options: Any, command: str
) -> None:
    with pytest.raises(CheckpointNotFoundError) as caught:
        drut.Router(**options).predict("a", NOUL, model=name)
    assert f"Make it with: {command}" in str(caught.value)
    assert f"checkpoint {name!r} is not exported" in str(caught.value)
    assert str(repository) in str(caught.value)


def test_a_half_copied_bundle_is_told_and_tried_again(repository: Path) -> None:
    path = write_bundle(repository, "english")
    graph = (path / "model.onnx").read_bytes()
    (path / "model.onnx").unlink()
    router = drut.Router()
    with pytest.raises(CheckpointNotFoundError, match=r"lacks model\.onnx"):
        predicted(router, "en")
    (path / "model.onnx").write_bytes(graph)
    assert predicted(router, "en") == "noul"


def test_a_bundle_of_another_origin_does_not_answer(repository: Path) -> None:
    path = write_bundle(repository, "english")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["source"] = "convaiinnovations/laya"
    (path / "manifest.json").write_text(json.dumps(manifest))
    assert predicted(drut.Router(), "en") == "noul"
    with pytest.raises(
        CheckpointNotFoundError, match=r"was exported from 'convaiinnovations/laya'"
    ):
        predicted(drut.Router({"en": "me/finetuned"}), "en")


@pytest.mark.parametrize(
    ("asked", "found", "opens"),
    [
        (REVIEWED, REVIEWED, True),
        ("reviewed", REVIEWED, True),
        ("reviewed", "0" * 40, False),
        ("main", "0" * 40, True),
        (None, "0" * 40, True),
        ("reviewed", None, True),
    ],
)
def test_a_bundle_must_be_of_the_commit_that_was_asked_for(
    repository: Path, asked: str | None, found: str | None, opens: bool
) -> None:
    write_bundle(repository, "english", revision=found)
    router = drut.Router(revision=asked)
    if opens:
        router.load("en")
        assert router.loaded_revisions == {"english": found}
    else:
        with pytest.raises(CheckpointNotFoundError, match=f"{found}, but {REVIEWED} was asked"):
            router.load("en")


def test_the_revision_of_the_environment_is_the_last_resort(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(repository, "english", revision="0" * 40)
    monkeypatch.setenv("DRUT_REVISION", "reviewed")
    with pytest.raises(CheckpointNotFoundError, match="was asked for"):
        drut.Router().load("en")
    assert drut.Router(revision="main").load("en")


def test_digests_are_checked_before_a_bundle_is_opened(repository: Path) -> None:
    write_bundle(repository, "english")
    wrong = {"model.onnx": "0" * 64}
    with pytest.raises(DigestMismatchError):
        drut.Router(sha256_digests={"EN": wrong}).load("en")
    with pytest.raises(DigestMismatchError):
        drut.Router(agent_kwargs={"expected_sha256": wrong}).load("en")


def test_digests_of_a_checkpoint_win_over_those_for_all() -> None:
    shared = {"expected_sha256": {"a": "1", "b": "2"}}
    settings = BuildSettings(agent_kwargs=shared, digests={"x": {"a": "3"}, "y": {}})
    assert settings.expected_sha256("x") == {"a": "3", "b": "2"}
    assert settings.expected_sha256("z") == {"a": "1", "b": "2"}
    assert BuildSettings(digests={"y": {}}).expected_sha256("y") == {}
    assert BuildSettings().expected_sha256("y") is None


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"agent_kwargs": {"device": "cpu"}}, "must not hold 'device'"),
        ({"agent_kwargs": {"hooks": []}}, "must not hold 'hooks'"),
        ({"agent_kwargs": {"revision": "x"}}, "must not hold 'revision'"),
        ({"agent_kwargs": {"thread": 2}}, "did you mean 'threads'"),
        ({"agent_kwargs": [1]}, "agent_kwargs must be a dict"),
        ({"agent_kwargs": {"threads": 1}, "factory": str}, "no effect beside factory"),
        ({"revisions": {"nope": "x"}}, "unknown checkpoint 'nope'"),
        ({"revisions": ["x"]}, "revisions must map"),
        ({"sha256_digests": {"nope": {}}}, "unknown checkpoint 'nope'"),
        ({"default": "nope"}, "unknown checkpoint 'nope'"),
        ({"models": {"auto": "a/b"}}, "cannot name a checkpoint"),
        ({"max_loaded": "2"}, "max_loaded must be a whole number"),
        ({"max_loaded": True}, "max_loaded must be a whole number"),
        ({"hooks_timeout": -1}, "hooks_timeout"),
    ],
)
def test_constructor_arguments_are_checked_at_once(options: Any, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        drut.Router(**options)


@pytest.mark.parametrize("made", [None, "agent", object()])
def test_a_factory_must_make_agents(made: Any) -> None:
    router = drut.Router(factory=lambda name: made)
    with pytest.raises(InvalidTypeError, match="cannot answer for the Router"):
        router.load("en")
    assert router.loaded == []
