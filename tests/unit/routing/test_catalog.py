"""Names, aliases and sources of checkpoints."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.routing.catalog import ALIASES, BUILT_IN, Catalog, Source, as_source


def test_four_checkpoints_are_built_in() -> None:
    catalog = Catalog()
    assert list(catalog.entries()) == ["english", "multilingual", "typed-decisions", "starter"]
    assert str(catalog["english"].source) == "convaiinnovations/laya"
    assert str(catalog["multilingual"].source) == "convaiinnovations/laya/multilingual"
    assert str(catalog["typed-decisions"].source) == "convaiinnovations/laya/typed-decisions"


def test_standalone_repositories() -> None:
    catalog = Catalog(standalone_repos=True)
    assert str(catalog["multilingual"].source) == "convaiinnovations/laya-multilingual"


@pytest.mark.parametrize(
    ("alias", "name"),
    [*ALIASES.items(), (" English ", "english"), ("ML", "multilingual"), ("Starter", "starter")],
)
def test_names_resolve(alias: str, name: str) -> None:
    assert Catalog().resolve(alias) == name


@pytest.mark.parametrize(
    ("unknown", "told"),
    [("englsh", "did you mean 'english'"), ("zzz", "Known are english"), ("auto", "unknown")],
)
def test_unknown_names_are_told_with_the_closest(unknown: str, told: str) -> None:
    with pytest.raises(InvalidRequestError, match=told):
        Catalog().resolve(unknown)


@pytest.mark.parametrize("name", [None, 3, ["english"]])
def test_a_name_is_a_string(name: Any) -> None:
    with pytest.raises(InvalidTypeError, match="named by a string"):
        Catalog().resolve(name)
    with pytest.raises(InvalidTypeError, match="named by a string"):
        Catalog().register(name, "org/repo")


@pytest.mark.parametrize("name", ["", " ", "auto", "AUTO", "a/b", "-a", "ä", "a b", ".a"])
def test_names_that_cannot_be_used(name: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot name a checkpoint"):
        Catalog().register(name, "org/repo")


@pytest.mark.parametrize("name", ["englishs", "nglish", "englizh", "enlgish", "starterr"])
def test_a_name_one_edit_from_a_built_in_one_is_warned_about(name: str) -> None:
    with pytest.warns(RuntimeWarning, match="one letter away from the built-in"):
        assert Catalog().register(name, "org/repo") == name


@pytest.mark.parametrize("name", ["support", "en-gb", "english-large", "laya2", "engilhs"])
def test_other_names_are_not_warned_about(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Catalog().register(name, "org/repo")


def test_an_alias_registers_the_checkpoint_it_stands_for() -> None:
    catalog = Catalog({"EN": "me/finetuned"})
    assert str(catalog["english"].source) == "me/finetuned"
    assert catalog.own() == {}
    assert catalog["english"].built_in


def test_a_failed_registration_changes_nothing() -> None:
    catalog = Catalog()
    with pytest.raises(InvalidTypeError, match="a source is"):
        catalog.register("english", 5)
    assert catalog["english"] == BUILT_IN["english"]


def test_models_is_a_mapping() -> None:
    with pytest.raises(InvalidTypeError, match="models must map names"):
        Catalog(["english"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "source"),
    [
        (None, None),
        ("org/repo", Source("org/repo")),
        (("org/repo", "sub"), Source("org/repo", "sub")),
        (["org/repo", "/sub/"], Source("org/repo", "sub")),
        (("org/repo", None), Source("org/repo")),
        (("org/repo", ""), Source("org/repo")),
        ("my-bundle", Source("my-bundle")),
        (Path("/there"), Source("/there")),
        ("/there", Source("/there")),
    ],
)
def test_sources(given: Any, source: Source | None) -> None:
    assert as_source(given) == source


@pytest.mark.parametrize("given", [5, "", " ", (), ("a",), ("a", 3), (None, "a"), {"a": 1}, b"a"])
def test_what_is_no_source(given: Any) -> None:
    with pytest.raises(InvalidTypeError, match="a source is"):
        as_source(given)


def test_local_sources_do_not_depend_on_the_directory_of_the_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bundle").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = Source(str((tmp_path / "bundle").resolve()))
    assert as_source("bundle") == as_source("./bundle") == as_source("~/bundle") == expected


def test_only_hub_repositories_are_on_the_hub() -> None:
    assert Source("org/repo").on_hub
    assert not Source("/org/repo").on_hub
    assert not Source("bundle").on_hub


def test_built_in_checkpoints_stay() -> None:
    catalog = Catalog({"mine": None})
    with pytest.raises(InvalidRequestError, match="built in"):
        catalog.remove("english")
    catalog.remove("mine")
    assert "mine" not in catalog
