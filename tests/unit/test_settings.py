import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from drut import settings
from drut.errors import DigestMismatchError, InvalidRequestError

VARIABLES = (
    "DRUT_MODEL_REPOSITORY",
    "DRUT_DEVICE",
    "DRUT_THREADS",
    "DRUT_REVISION",
    "DRUT_SHA256_DIGESTS",
    "XDG_DATA_HOME",
)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_the_module_names_every_variable_it_reads():
    source = Path(settings.__file__).read_text(encoding="utf-8")
    documented = settings.__doc__ or ""
    for name in VARIABLES[:-1]:
        assert f"`{name}`" in documented
        assert f'"{name}"' in source


def test_repositories_are_searched_from_the_named_to_the_shipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", os.pathsep.join(["/one", " ", "~/two"]))
    assert settings.model_repositories() == [
        Path("/one"),
        Path("/home/somebody/two"),
        Path("model_repository"),
        Path("/home/somebody/.local/share/drut/model_repository"),
        settings.shipped_repository(),
    ]


def test_a_place_is_searched_once_under_its_first_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "model_repository").mkdir()
    (tmp_path / "link").symlink_to("model_repository")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRUT_MODEL_REPOSITORY", str(tmp_path / "link"))
    found = settings.model_repositories()
    assert found[0] == tmp_path / "link"
    assert Path("model_repository") not in found


def test_the_users_own_repository_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert settings.user_repository() == tmp_path / "drut" / "model_repository"


def test_a_user_without_a_home_still_finds_the_shipped_repository(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.chdir(tmp_path)

    def nobody(uid: int) -> Any:
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    assert settings.model_repositories()[-1] == settings.shipped_repository()


def test_the_shipped_repository_is_the_package_s_or_the_source_tree_s(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    package = tmp_path / "src" / "drut"
    monkeypatch.setattr(settings, "_PACKAGE", package)
    assert settings.shipped_repository() == tmp_path / "model_repository"
    (package / "model_repository").mkdir(parents=True)
    assert settings.shipped_repository() == package / "model_repository"


@pytest.mark.parametrize(
    ("value", "directory"),
    [
        (None, "model_repository"),
        ("", "model_repository"),
        (f"/a{os.pathsep}/b", "/a"),
        ("~/m", "/home/somebody/m"),
    ],
)
def test_an_export_goes_into_the_first_named_repository(
    monkeypatch: pytest.MonkeyPatch, value: str | None, directory: str
):
    monkeypatch.setenv("HOME", "/home/somebody")
    if value is not None:
        monkeypatch.setenv("DRUT_MODEL_REPOSITORY", value)
    assert settings.default_repository() == Path(directory)


@pytest.mark.parametrize(
    ("value", "device"), [(None, "auto"), ("", "auto"), (" ", "auto"), (" cuda:1 ", "cuda:1")]
)
def test_the_device(monkeypatch: pytest.MonkeyPatch, value: str | None, device: str):
    if value is not None:
        monkeypatch.setenv("DRUT_DEVICE", value)
    assert settings.default_device() == device


@pytest.mark.parametrize(("value", "threads"), [(None, None), ("", None), (" 3 ", 3)])
def test_threads(monkeypatch: pytest.MonkeyPatch, value: str | None, threads: int | None):
    if value is not None:
        monkeypatch.setenv("DRUT_THREADS", value)
    assert settings.default_threads() == threads


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "two", "1e3", "²", "True"])
def test_threads_that_are_no_positive_number_are_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
):
    monkeypatch.setenv("DRUT_THREADS", value)
    with pytest.raises(InvalidRequestError, match="DRUT_THREADS"):
        settings.default_threads()


@pytest.mark.parametrize(("value", "revision"), [(None, None), (" ", None), (" v1 ", "v1")])
def test_the_revision(monkeypatch: pytest.MonkeyPatch, value: str | None, revision: str | None):
    if value is not None:
        monkeypatch.setenv("DRUT_REVISION", value)
    assert settings.default_revision() == revision


def test_digests_are_a_json_object(monkeypatch: pytest.MonkeyPatch):
    assert settings.default_digests() is None
    monkeypatch.setenv("DRUT_SHA256_DIGESTS", " ")
    assert settings.default_digests() is None
    monkeypatch.setenv("DRUT_SHA256_DIGESTS", '{"model.onnx": "AB"}')
    assert settings.default_digests() == {"model.onnx": "AB"}


@pytest.mark.parametrize("value", ["{", "[]", '"x"', '{"a": 1}', "null", "{'a': 'b'}"])
def test_digests_that_cannot_be_read_are_no_reason_to_skip_the_check(
    monkeypatch: pytest.MonkeyPatch, value: str
):
    monkeypatch.setenv("DRUT_SHA256_DIGESTS", value)
    with pytest.raises(DigestMismatchError, match="DRUT_SHA256_DIGESTS"):
        settings.default_digests()


def test_a_variable_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch):
    assert settings.default_device() == "auto"
    monkeypatch.setenv("DRUT_DEVICE", "cpu")
    assert settings.default_device() == "cpu"
