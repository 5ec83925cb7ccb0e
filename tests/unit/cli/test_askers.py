"""Without --checkpoint, text is routed as soon as there is something to route to."""

from pathlib import Path

import pytest

from bundles import write_bundle
from drut.cli.answering import AskOptions
from drut.cli.askers import AgentAsker, RoutedAsker, open_asker
from drut.errors import CheckpointNotFoundError, InvalidRequestError
from tiny_checkpoint import ALL


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("english", "multilingual", "starter"):
        write_bundle(tmp_path / "all", name)
    write_bundle(tmp_path / "only-starter", "starter")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(tmp_path / "all"))
    return tmp_path


def test_states_are_routed_one_by_one(repository: Path) -> None:
    asker = open_asker(None, "cpu", ALL, AskOptions())
    assert isinstance(asker, RoutedAsker)
    asker.check()
    results = asker.answer(["Where is my order, please?", "Где мой заказ?"])
    assert [result["routing"]["model"] for result in results] == ["english", "multilingual"]
    assert results[0]["answers"].keys() == ALL.keys()
    assert asker.facts(results[1]).startswith("multilingual: ")
    asker.close()


def test_a_long_state_is_routed_and_read_in_windows(repository: Path) -> None:
    asker = open_asker(None, "cpu", ALL, AskOptions(long=True, min_confidence=1.0))
    (result,) = asker.answer(["the app crashes on start and nobody answered " * 60])
    assert result["usage"]["windows"] > 1
    assert {answer["abstention"] for answer in result["answers"].values()} == {"abstained"}
    asker.close()


def test_faults_of_questions_are_found_before_a_checkpoint_is_opened(repository: Path) -> None:
    asker = open_asker(None, "cpu", {"q": {"type": "noul"}}, AskOptions())
    with pytest.raises(InvalidRequestError, match="lacks 'instructions'"):
        asker.check()
    asker.close()


def test_with_the_starter_alone_the_starter_answers(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(repository / "only-starter"))
    asker = open_asker(None, "cpu", ALL, AskOptions())
    assert isinstance(asker, AgentAsker)
    assert asker.agent.model_id == "starter"
    asker.close()


def test_a_named_checkpoint_is_the_one_that_answers(repository: Path) -> None:
    asker = open_asker("english", "cpu", ALL, AskOptions())
    assert isinstance(asker, AgentAsker)
    assert asker.agent.model_id == "english"
    asker.close()
    with pytest.raises(CheckpointNotFoundError):
        open_asker("german", "cpu", ALL, AskOptions())
