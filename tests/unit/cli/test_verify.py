import sys
from types import ModuleType

import pytest

from drut.cli.main import main


def verifier(monkeypatch: pytest.MonkeyPatch, main_of_it: object) -> None:
    module = ModuleType("drut_export.verify_cli")
    module.main = main_of_it  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "drut_export.verify_cli", module)


def test_every_argument_and_the_exit_code_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    verifier(monkeypatch, lambda argv: seen.append(argv) or 7)
    arguments = ["starter", "--source", "x", "--help", "--", "-y"]
    assert main(["verify", *arguments]) == 7
    assert seen == [arguments]


def test_a_package_that_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: list[str]) -> int:
        raise ModuleNotFoundError("No module named 'torch'")

    verifier(monkeypatch, fail)
    assert main(["verify", "starter", "--source", "x"]) == 1
    told = capsys.readouterr().err
    assert "drut[export]" in told
    assert "No module named 'torch'" in told
    assert told.count("\n") == 1
