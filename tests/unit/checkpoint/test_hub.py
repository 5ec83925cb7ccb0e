import contextlib
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import LocalEntryNotFoundError, OfflineModeIsEnabled

from drut.checkpoint import hub as client
from drut.checkpoint.hub import ATTEMPTS, download_snapshot, is_broken_connection
from drut.checkpoint.source import fetch_checkpoint
from drut.errors import DownloadError
from hub_server import HubServer, files_of, point_client_at
from tiny_checkpoint import TINY

REPO = "org/tiny"
WEIGHTS = bytes(range(256)) * 100
FILE = "/model.safetensors"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module", autouse=True)
def _client() -> Iterator[None]:
    close = getattr(huggingface_hub, "close_session", lambda: None)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        close()
        yield
        close()


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    made = HubServer()
    made.add(REPO, {**files_of(TINY), "model.safetensors": WEIGHTS})
    point_client_at(made, tmp_path, monkeypatch, bars=True)
    huggingface_hub.utils.enable_progress_bars()
    with made.running():
        yield made
    huggingface_hub.utils.disable_progress_bars()


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses instead of making them; the client makes some of its own."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


def asked(hub: HubServer, method: str, where: str = FILE) -> int:
    return sum(each.method == method and each.path.endswith(where) for each in hub.asked)


@pytest.mark.usefixtures("slept")
@pytest.mark.parametrize("where", ["/api/models/", "/tree/", FILE])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_connection_that_breaks_now_and_then_does_not_matter(
    hub: HubServer, where: str, method: str
) -> None:
    hub.fail(where, method=method, body="none", times=2)
    found = fetch_checkpoint(REPO)
    assert (found.path / "model.safetensors").read_bytes() == WEIGHTS


def test_what_the_client_gives_up_is_tried_again_and_complete_files_are_kept(
    hub: HubServer, slept: list[float]
) -> None:
    fault = hub.fail(FILE, method="HEAD", body="none", times=ATTEMPTS - 1)
    found = fetch_checkpoint(REPO)
    assert fault.times == 0
    assert asked(hub, "HEAD") == ATTEMPTS
    assert asked(hub, "GET", "/tokenizer/tokenizer.json") == 1
    assert (found.path / "model.safetensors").read_bytes() == WEIGHTS
    assert [pause for pause in slept if pause in (1.0, 2.0)] == [1.0, 2.0]


def test_a_download_that_breaks_off_again_and_again_goes_on_where_it_stopped(
    hub: HubServer, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # what is kept at the least
    hub.fail(FILE, body="cut", times=4)
    assert (fetch_checkpoint(REPO).path / "model.safetensors").read_bytes() == WEIGHTS
    starts = [each.start for each in hub.asked if each.path.endswith(FILE) and each.method == "GET"]
    assert starts[0] == 0
    assert starts == sorted(starts)
    assert starts[-1] > 0


def test_after_the_last_attempt_the_error_is_told(hub: HubServer, slept: list[float]) -> None:
    hub.fail(FILE, method="HEAD", body="none")
    with pytest.raises(DownloadError, match="'org/tiny'"):
        fetch_checkpoint(REPO)
    assert asked(hub, "HEAD") == ATTEMPTS


@pytest.mark.usefixtures("slept")
@pytest.mark.parametrize("status", [401, 404, 418])
def test_an_answer_is_no_broken_connection(hub: HubServer, status: int) -> None:
    hub.fail(FILE, method="HEAD", status=status)
    with pytest.raises(Exception, match=r"org/tiny|418|404|401"):
        fetch_checkpoint(REPO)
    assert asked(hub, "HEAD") == 1


def test_offline_nothing_is_tried_twice(
    hub: HubServer, slept: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
        fetch_checkpoint(REPO)
    assert slept == []


def test_an_interruption_is_never_answered_by_another_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def interrupted(repository: str, **options: Any) -> str:
        calls.append(repository)
        raise KeyboardInterrupt

    monkeypatch.setattr(huggingface_hub, "snapshot_download", interrupted)
    with pytest.raises(KeyboardInterrupt):
        download_snapshot(REPO, None, None, [])
    assert calls == [REPO]


def caused_by(cause: BaseException) -> BaseException:
    try:
        raise LocalEntryNotFoundError("not in the cache") from cause
    except LocalEntryNotFoundError as exc:
        return exc


class TransportError(Exception):
    """As one of the client's HTTP libraries calls it."""


class ReadError(TransportError):
    pass


@pytest.mark.parametrize(
    ("error", "broken"),
    [
        (ConnectionResetError(), True),
        (TimeoutError(), True),
        (ReadError(), True),
        (caused_by(ReadError()), True),
        (caused_by(OfflineModeIsEnabled("offline")), False),
        (caused_by(ValueError("no")), False),
        (OSError(28, "No space left on device"), False),
        (PermissionError(), False),
    ],
    ids=repr,
)
def test_only_broken_connections_are_worth_another_attempt(
    error: BaseException, broken: bool
) -> None:
    assert is_broken_connection(error) is broken


@pytest.mark.usefixtures("slept")
@pytest.mark.parametrize(("stream", "shown"), [(Terminal, True), (io.StringIO, False)])
def test_progress_is_shown_to_a_person_alone(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], shown: bool
) -> None:
    written = stream()
    with contextlib.redirect_stderr(written):
        fetch_checkpoint(REPO)
    assert ("Fetching" in written.getvalue()) is shown


@pytest.mark.usefixtures("slept")
def test_progress_that_is_switched_off_stays_off_on_a_terminal(hub: HubServer) -> None:
    huggingface_hub.utils.disable_progress_bars()
    with contextlib.redirect_stderr(Terminal()) as written:
        fetch_checkpoint(REPO)
    assert written.getvalue() == ""


def test_without_standard_error_there_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    assert client._is_terminal() is False
