import pytest

from drut.errors import InvalidTypeError
from drut.language.codes import names_english, primary_subtag


@pytest.mark.parametrize(
    "code",
    ["en", "EN", "en_US", "en-GB", "en_US.UTF-8", "en@euro", "eng", "English", " en ", "en.utf8"],
)
def test_english(code: str) -> None:
    assert names_english(code) is True


@pytest.mark.parametrize(
    ("code", "subtag"),
    [("de-DE", "de"), ("zh-Hant", "zh"), ("xx", "xx"), ("pt_BR.UTF-8", "pt"), ("DE@euro", "de")],
)
def test_other_languages(code: str, subtag: str) -> None:
    assert names_english(code) is False
    assert primary_subtag(code) == subtag


@pytest.mark.parametrize(
    "code", [None, "", "  ", "C", "c", "C.UTF-8", "POSIX", "und", "zxx", "mul", "_", ".UTF-8"]
)
def test_codes_that_name_no_language(code: str | None) -> None:
    assert primary_subtag(code) is None
    assert names_english(code) is None


@pytest.mark.parametrize("code", [5, True, b"en", ["en"], object()])
def test_what_is_no_string_is_refused(code: object) -> None:
    with pytest.raises(InvalidTypeError, match=type(code).__name__):
        primary_subtag(code)
    with pytest.raises(TypeError):
        names_english(code)
