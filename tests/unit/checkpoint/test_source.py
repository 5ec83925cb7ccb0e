import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants

from drut.checkpoint import source
from drut.checkpoint.config import read_config
from drut.checkpoint.source import (
    REVIEWED_REVISIONS,
    fetch_checkpoint,
    resolve_revision,
    sha256_of,
    verify_digests,
)
from drut.checkpoint.tokenizer import read_tokenizer
from drut.errors import (
    CheckpointNotFoundError,
    DigestMismatchError,
    DownloadError,
    InvalidRequestError,
    InvalidTypeError,
)
from hub_server import MAIN, HubServer, files_of, point_client_at
from tiny_checkpoint import TINY, TINY_PARALLEL, copy_of_tiny

REPO = "org/tiny"
OTHER = "2" * 40
CHECKPOINT_FILES = {
    "rl_agent_config.json",
    "model.safetensors",
    "tokenizer/tokenizer.json",
    "tokenizer/tokenizer_config.json",
    "encoder/config.json",
}


WEIGHTS = bytes(range(256)) * 100
"""Stand-ins for the weights: nothing here reads them, and half a megabyte takes its time."""


def content() -> dict[str, bytes]:
    """A repository with a checkpoint at its root, another in a folder, and things unwanted."""
    return {
        **files_of(TINY),
        **files_of(TINY_PARALLEL, "parallel/"),
        "model.safetensors": WEIGHTS,
        "parallel/model.safetensors": WEIGHTS + b"parallel",
        "LICENSE": b"do what you like",
        "README.md": b"# tiny",
        "optimizer.bin": bytes(50_000),
        "onnx/model.onnx": bytes(60_000),
        "parallel/checkpoint_latest/model.safetensors": bytes(70_000),
    }


@pytest.fixture(scope="module", autouse=True)
def _client() -> Iterator[None]:
    """One HTTP client for all tests, since making one reads every certificate; without a proxy."""
    close = getattr(huggingface_hub, "close_session", lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        huggingface_hub.utils.disable_progress_bars()
        close()
        yield
        close()


@pytest.fixture
def hub() -> Iterator[HubServer]:
    made = HubServer()
    made.add(REPO, content())
    with made.running():
        yield made


@pytest.fixture
def cache(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's client talks to the stand-in, keeps files in an own cache, and never waits."""
    point_client_at(hub, tmp_path, monkeypatch, bars=False)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    return tmp_path / "cache"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A call that cuts the client off the network, as HF_HUB_OFFLINE does."""
    return lambda: monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def complete(path: Path) -> bool:
    return all((path / name).is_file() for name in CHECKPOINT_FILES)


@pytest.mark.usefixtures("cache")
def test_only_the_files_of_the_checkpoint_are_downloaded(hub: HubServer):
    found = fetch_checkpoint(REPO)
    assert hub.downloaded == CHECKPOINT_FILES | {"LICENSE", "README.md"}
    assert files_of(found.path) == {
        name: content()[name] for name in CHECKPOINT_FILES | {"LICENSE", "README.md"}
    }
    assert found.revision == MAIN
    assert found.display == REPO
    assert read_config(found.path).max_len == 256
    assert read_tokenizer(found.path).cls_id == 2


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("subfolder", ["parallel", "parallel/"])
def test_only_the_files_of_the_subfolder_are_downloaded(hub: HubServer, subfolder: str):
    found = fetch_checkpoint(REPO, subfolder=subfolder)
    assert hub.downloaded == {f"parallel/{name}" for name in CHECKPOINT_FILES} | {
        "LICENSE",
        "README.md",
    }
    assert complete(found.path)
    assert read_config(found.path).parallel is True
    assert found.display == f"{REPO}/{subfolder}"


@pytest.mark.usefixtures("cache")
def test_a_subfolder_is_a_name_and_not_a_pattern(hub: HubServer):
    with pytest.raises(CheckpointNotFoundError):
        fetch_checkpoint(REPO, subfolder="par*")
    assert hub.downloaded <= {"LICENSE", "README.md"}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("revision", ["v2", OTHER, f" {OTHER} ", "refs/pr/1"])
def test_a_branch_tag_or_commit_can_be_asked_for(hub: HubServer, revision: str):
    files = {**content(), "rl_agent_config.json": b'{"encoder": "other", "head_layers": 0}'}
    hub.repositories[REPO].add(files, "v2", "refs/pr/1", commit=OTHER)
    found = fetch_checkpoint(REPO, revision=revision)
    assert found.revision == OTHER
    assert read_config(found.path).encoder == "other"
    assert fetch_checkpoint(REPO, revision="  ").revision == MAIN


@pytest.mark.usefixtures("cache")
def test_reviewed_stands_for_the_pinned_commit(hub: HubServer):
    name, commit = next(iter(REVIEWED_REVISIONS.items()))
    hub.add(name, {}).add(files_of(TINY), commit=commit)
    assert fetch_checkpoint(name, revision=" reviewed ").revision == commit
    with pytest.raises(InvalidRequestError, match=r"'org/tiny'.*Give a commit"):
        fetch_checkpoint(REPO, revision="reviewed")


@pytest.mark.parametrize(
    ("revision", "resolved"), [(None, None), ("", None), (" ", None), ("v1", "v1"), (" v1 ", "v1")]
)
def test_a_revision_is_stripped_and_blank_is_none(revision: str | None, resolved: str | None):
    assert resolve_revision("any/thing", revision) == resolved


@pytest.mark.parametrize(("name", "commit"), REVIEWED_REVISIONS.items())
def test_reviewed_ignores_the_case_of_the_name(name: str, commit: str):
    assert resolve_revision(name.upper(), "reviewed") == commit
    assert len(commit) == 40


@pytest.mark.usefixtures("cache")
def test_a_complete_cache_with_a_commit_needs_no_request(hub: HubServer):
    first = fetch_checkpoint(REPO, revision=MAIN)
    hub.forget()
    assert fetch_checkpoint(REPO, revision=MAIN) == first
    assert hub.asked == []


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("subfolder", "revision"),
    [(None, None), (None, MAIN), ("parallel", None), ("parallel", "main")],
)
def test_offline_a_complete_cache_works(
    hub: HubServer, offline: Any, subfolder: str | None, revision: str | None
):
    online = fetch_checkpoint(REPO, subfolder=subfolder, revision=revision)
    hub.forget()
    offline()
    assert fetch_checkpoint(REPO, subfolder=subfolder, revision=revision) == online
    assert complete(online.path)
    assert hub.asked == []


@pytest.mark.usefixtures("cache")
def test_offline_without_a_cache_the_error_says_what_to_do(hub: HubServer, offline: Any):
    offline()
    with pytest.raises(DownloadError, match=r"'org/tiny'.*HF_HUB_OFFLINE.*download it once"):
        fetch_checkpoint(REPO)
    assert hub.asked == []


@pytest.mark.usefixtures("cache")
def test_offline_the_cache_of_another_folder_is_not_enough(offline: Any):
    fetch_checkpoint(REPO)
    offline()
    with pytest.raises(DownloadError, match=r"'org/tiny/parallel'.*download it once"):
        fetch_checkpoint(REPO, subfolder="parallel")


def test_offline_a_cache_that_others_left_in_part_is_not_taken_for_a_checkpoint(
    cache: Path, offline: Any
):
    found = fetch_checkpoint(REPO)
    (found.path / "model.safetensors").unlink()
    for folder in cache.glob("*/trees"):
        shutil.rmtree(folder)
    _forget_listings()
    offline()
    with pytest.raises(CheckpointNotFoundError, match=r"model\.safetensors.*with network"):
        fetch_checkpoint(REPO)


def _forget_listings() -> None:
    """Newer clients keep the listing of a commit in memory; another process would not have it."""
    try:
        from huggingface_hub import _tree_cache
    except ImportError:
        return
    _tree_cache._IN_MEMORY_TREE_CACHE.clear()


@pytest.mark.usefixtures("cache")
def test_a_hub_that_is_down_is_a_download_error(hub: HubServer):
    hub.stop()
    with pytest.raises(DownloadError, match="'org/tiny'") as caught:
        fetch_checkpoint(REPO)
    assert isinstance(caught.value, OSError)


@pytest.mark.usefixtures("cache")
def test_a_hub_that_is_down_does_not_matter_once_the_files_are_there(hub: HubServer):
    first = fetch_checkpoint(REPO)
    hub.stop()
    assert fetch_checkpoint(REPO) == first


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("where", "status"), [("/api/models/", 500), ("/api/models/", 429), ("/tree/", 503)]
)
def test_an_error_of_the_hub_is_a_download_error(hub: HubServer, where: str, status: int):
    hub.fail(where, status=status)
    with pytest.raises(DownloadError, match=str(status)):
        fetch_checkpoint(REPO)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("method", ["HEAD", "GET"])
def test_an_error_about_one_file_is_a_download_error(hub: HubServer, method: str):
    hub.fail("/model.safetensors", method=method, status=503)
    with pytest.raises(DownloadError, match="'org/tiny'"):
        fetch_checkpoint(REPO)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("where", ["/api/models/", "/tree/", "/model.safetensors"])
def test_a_connection_that_breaks_is_a_download_error(hub: HubServer, where: str):
    hub.fail(where, body="none")
    with pytest.raises(DownloadError, match="'org/tiny'"):
        fetch_checkpoint(REPO)


@pytest.mark.usefixtures("cache")
def test_a_web_page_instead_of_an_answer_is_a_download_error(hub: HubServer):
    hub.fail("/api/models/", body="page")
    with pytest.raises(DownloadError, match="'org/tiny'"):
        fetch_checkpoint(REPO)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("repository", "revision", "mention"),
    [
        ("org/none", None, "'org/none'"),
        (REPO, "v9", "'v9'"),
        (REPO, "3" * 40, "3333"),
        ("org/two--dashes", None, "two--dashes"),
    ],
)
def test_what_the_hub_does_not_have_is_not_found(
    repository: str, revision: str | None, mention: str
):
    with pytest.raises(CheckpointNotFoundError, match=mention):
        fetch_checkpoint(repository, revision=revision)


@pytest.mark.usefixtures("cache")
def test_a_subfolder_that_the_repository_lacks_is_not_found():
    with pytest.raises(CheckpointNotFoundError, match="'org/tiny/none'"):
        fetch_checkpoint(REPO, subfolder="none")


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("missing", ["model.safetensors", "rl_agent_config.json"])
def test_a_repository_without_a_checkpoint_is_told_from_a_broken_download(
    hub: HubServer, missing: str
):
    hub.add(REPO, {name: data for name, data in content().items() if name != missing})
    with pytest.raises(CheckpointNotFoundError, match=rf"{missing}.*not a.*checkpoint"):
        fetch_checkpoint(REPO)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("code", ["RepoNotFound", "GatedRepo"])
def test_a_repository_behind_a_token_points_at_the_token(hub: HubServer, code: str):
    status = 401 if code == "RepoNotFound" else 403
    hub.fail("/api/models/", status=status, headers={"X-Error-Code": code})
    with pytest.raises(CheckpointNotFoundError, match="HF_TOKEN"):
        fetch_checkpoint(REPO)


@pytest.mark.usefixtures("cache")
def test_a_refused_token_is_said_to_be_refused(hub: HubServer):
    hub.token = "right"
    with pytest.raises(DownloadError, match=r"401.*HF_TOKEN"):
        fetch_checkpoint(REPO, token="wrong")


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("by", ["argument", "variable"])
def test_the_token_is_sent_with_every_request(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, by: str
):
    hub.token = "secret"
    if by == "variable":
        monkeypatch.setenv("HF_TOKEN", "secret")
    found = fetch_checkpoint(REPO, token="secret" if by == "argument" else None)
    assert complete(found.path)
    assert {asked.token for asked in hub.asked} == {"secret"}


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("token", [None, ""])
def test_without_a_token_none_is_sent(hub: HubServer, token: str | None):
    fetch_checkpoint(REPO, token=token)
    assert {asked.token for asked in hub.asked} == {None}


@pytest.mark.usefixtures("cache")
def test_no_token_is_ever_part_of_a_message(hub: HubServer):
    hub.token = "right"
    with pytest.raises(DownloadError) as caught:
        fetch_checkpoint(REPO, token="hf_verysecret")
    assert "verysecret" not in str(caught.value)


def test_half_a_file_is_a_download_error_and_is_never_used(hub: HubServer, cache: Path):
    fault = hub.fail("/model.safetensors", body="short")
    with pytest.raises(DownloadError, match="'org/tiny'"):
        fetch_checkpoint(REPO)
    assert not list(cache.rglob("model.safetensors"))
    assert not list(cache.rglob("*.incomplete"))
    fault.times = 0
    assert (fetch_checkpoint(REPO).path / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.usefixtures("cache")
def test_after_a_broken_download_offline_finds_nothing(hub: HubServer, offline: Any):
    hub.fail("/model.safetensors", body="short")
    with pytest.raises(DownloadError):
        fetch_checkpoint(REPO)
    offline()
    with pytest.raises(DownloadError, match="download it once"):
        fetch_checkpoint(REPO)


@pytest.mark.usefixtures("cache")
def test_a_download_that_breaks_off_once_is_resumed(hub: HubServer):
    hub.fail("/model.safetensors", body="cut", times=1)
    found = fetch_checkpoint(REPO)
    assert (found.path / "model.safetensors").read_bytes() == WEIGHTS
    wanted = [asked for asked in hub.asked if asked.path.endswith("/model.safetensors")]
    assert [asked.method for asked in wanted] == ["HEAD", "GET", "GET"]


@pytest.mark.usefixtures("cache")
def test_digests_of_a_download_are_checked(hub: HubServer):
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert fetch_checkpoint(REPO, expected_sha256={"model.safetensors": digest.upper()})
    hub.add(REPO, {**content(), "model.safetensors": b"other weights"})
    shutil.rmtree(constants.HF_HUB_CACHE)
    _forget_listings()
    with pytest.raises(DigestMismatchError, match=r"model\.safetensors"):
        fetch_checkpoint(REPO, expected_sha256={"model.safetensors": digest})


def test_a_local_directory_is_never_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source, "_download", None)
    monkeypatch.chdir(tmp_path)
    copy_of_tiny(tmp_path / "org" / "tiny")
    for name in ("org/tiny", Path("org/tiny"), tmp_path / "org" / "tiny", "./org/tiny"):
        found = fetch_checkpoint(name)
        assert complete(found.path)
        assert found.revision is None
        assert found.display == str(name)


def test_a_subfolder_of_a_local_directory(tmp_path: Path):
    copy_of_tiny(tmp_path / "parallel", TINY_PARALLEL)
    found = fetch_checkpoint(tmp_path, subfolder="parallel")
    assert found.path == tmp_path / "parallel"
    with pytest.raises(CheckpointNotFoundError, match="none"):
        fetch_checkpoint(tmp_path, subfolder="none")


def test_a_home_directory_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    copy_of_tiny(tmp_path / "mine")
    assert fetch_checkpoint("~/mine").path == tmp_path / "mine"


@pytest.mark.parametrize(
    "name",
    [
        "./none",
        "../none",
        "/none",
        "~/none",
        "~nosuchuser/x",
        "name-without-an-organisation",
        "a/b/c",
        "org/name/",
        "C:\\none",
        "nul\0l/x",
        "x" * 5000,
        Path("org/tiny"),
    ],
    ids=lambda name: ascii(str(name)[:30]),
)
def test_what_cannot_be_a_hub_id_is_only_looked_for_here(
    name: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(source, "_download", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointNotFoundError):
        fetch_checkpoint(name)


def test_a_file_is_no_checkpoint_directory(tmp_path: Path):
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(CheckpointNotFoundError, match=r"model\.safetensors"):
        fetch_checkpoint(path)


@pytest.mark.parametrize("name", ["", " ", "\n"])
def test_an_empty_name_is_not_the_current_directory(name: str):
    with pytest.raises(InvalidRequestError, match="empty"):
        fetch_checkpoint(name)


@pytest.mark.parametrize("name", [None, 5, b"org/tiny", ["org/tiny"]])
def test_a_name_of_another_type_is_refused(name: Any):
    with pytest.raises(InvalidTypeError, match=type(name).__name__):
        fetch_checkpoint(name)


@pytest.mark.parametrize("subfolder", ["..", "a/../../b", "/etc", "C:\\x", "a\\..\\..\\b"])
@pytest.mark.parametrize("local", [True, False])
def test_a_subfolder_does_not_lead_out(
    subfolder: str, local: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(source, "_download", None)
    with pytest.raises(InvalidRequestError, match="subfolder"):
        fetch_checkpoint(tmp_path if local else REPO, subfolder=subfolder)


def test_matching_digests_pass_in_any_case(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.bin").write_bytes(b"x" * 3_000_000)  # more than is read at a time
    digest = hashlib.sha256(b"x" * 3_000_000).hexdigest()
    assert sha256_of(tmp_path / "a" / "b.bin") == digest
    verify_digests(tmp_path, {"a/b.bin": digest})
    verify_digests(tmp_path, {"a/b.bin": f" {digest.upper()} "})
    verify_digests(tmp_path, {})


@pytest.mark.parametrize("other", [b"", b"contenu", b"content\n", b"Content"])
def test_any_other_content_has_another_digest(tmp_path: Path, other: bytes):
    (tmp_path / "f").write_bytes(b"content")
    with pytest.raises(DigestMismatchError, match="f has SHA-256"):
        verify_digests(tmp_path, {"f": hashlib.sha256(other).hexdigest()})


@pytest.mark.parametrize(
    "expected",
    [
        None,
        [],
        [("f", "0" * 64)],
        "f",
        {"../f": "0" * 64},
        {"/etc/hostname": "0" * 64},
        {"a/../../f": "0" * 64},
        {"..\\f": "0" * 64},
        {"C:\\f": "0" * 64},
        {"": "0" * 64},
        {5: "0" * 64},
        {"f": None},
        {"f": 5},
        {"f": "0" * 64},
        {"f": ""},
    ],
    ids=repr,
)
def test_a_digest_that_is_malformed_or_different_is_a_mismatch(tmp_path: Path, expected: Any):
    (tmp_path / "f").write_bytes(b"content")
    (tmp_path.parent / "f").write_bytes(b"content")
    with pytest.raises(DigestMismatchError):
        verify_digests(tmp_path, expected)


@pytest.mark.parametrize("path", ["none", "a/none", ".", "nul\0l"])
def test_a_digest_of_a_missing_file_is_not_found(tmp_path: Path, path: str):
    with pytest.raises(CheckpointNotFoundError, match="digest"):
        verify_digests(tmp_path, {path: "0" * 64})


def test_digests_are_checked_before_anything_is_parsed(tmp_path: Path):
    copy = copy_of_tiny(tmp_path / "c")
    (copy / "rl_agent_config.json").write_bytes(b"not json")
    with pytest.raises(DigestMismatchError):
        fetch_checkpoint(copy, expected_sha256={"rl_agent_config.json": "0" * 64})
    assert fetch_checkpoint(copy)  # nothing is parsed here at all


def test_a_digest_follows_the_links_of_the_hubs_cache(tmp_path: Path):
    (tmp_path / "blob").write_bytes(b"x")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "snapshot" / "f").symlink_to(tmp_path / "blob")
    verify_digests(tmp_path / "snapshot", {"f": hashlib.sha256(b"x").hexdigest()})


def test_the_clients_own_variables_mean_what_they_always_mean(hub: HubServer, tmp_path: Path):
    program = (
        "import json\n"
        "from drut.checkpoint.source import fetch_checkpoint\n"
        f"found = fetch_checkpoint({REPO!r})\n"
        "print(json.dumps([str(found.path), found.revision]))\n"
    )
    environment = {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HF_HOME": str(tmp_path / "hf"),
        "HF_ENDPOINT": hub.url,
        "HF_TOKEN": "secret",
        "HF_HUB_DISABLE_XET": "1",
    }

    def fetch(**more: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, **more},
            capture_output=True,
            check=True,
            text=True,
            timeout=60,
        )
        return json.loads(done.stdout)

    path, revision = fetch()
    assert Path(path).is_relative_to(tmp_path / "hf")
    assert revision == MAIN
    assert {asked.token for asked in hub.asked} == {"secret"}
    hub.stop()
    assert fetch(HF_HUB_OFFLINE="1") == [path, revision]
