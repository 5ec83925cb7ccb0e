"""The letter table agrees with the interpreter's database wherever that database knows a letter."""

import itertools
import sys
import unicodedata
from pathlib import Path

import unicodedata2

from drut.language import tables
from drut.language.scripts import LATIN, script_of

ROOT = Path(__file__).parents[3]
SYMBOLIC = {"braille", "signwriting", "proto_cuneiform"}


def known_characters():
    for code_point in range(sys.maxunicode + 1):
        character = chr(code_point)
        if not 0xD800 <= code_point <= 0xDFFF and unicodedata.category(character) != "Cn":
            yield character


def test_every_letter_has_a_script_and_nothing_else_has() -> None:
    wrong = [
        f"U+{ord(character):04X}"
        for character in known_characters()
        if unicodedata.category(character).startswith("L") != (script_of(character) is not None)
        and script_of(character) not in SYMBOLIC
    ]
    assert not wrong


def test_letters_named_latin_are_latin_and_others_are_not() -> None:
    for character in known_characters():
        name = unicodedata.name(character, "")
        if unicodedata.category(character) in ("Lu", "Ll", "Lt") and " LETTER " in name:
            named_latin = name.removeprefix("FULLWIDTH ").startswith("LATIN ")
            if named_latin or name.startswith(("GREEK", "CYRILLIC", "ARMENIAN", "CHEROKEE")):
                assert (script_of(character) == LATIN) == named_latin, name


def test_ranges_do_not_overlap() -> None:
    spans = sorted(
        tuple(int(end, 16) for end in (span.split("-") * 2)[:2])
        for text in tables.LETTER_RANGES.values()
        for span in text.split()
    )
    assert all(low <= high for low, high in spans)
    assert all(first[1] < second[0] for first, second in itertools.pairwise(spans))


def test_the_table_is_at_least_as_new_as_the_interpreter() -> None:
    table = tuple(map(int, tables.UNICODE_VERSION.split(".")))
    assert table >= tuple(map(int, unicodedata.unidata_version.split(".")))
    assert f"Unicode {tables.UNICODE_VERSION}." in (tables.__doc__ or "")


def test_the_generator_writes_the_committed_table(tmp_path: Path, monkeypatch) -> None:
    # The pinned unicodedata2 decides the version; after an update, run the generator again.
    assert unicodedata2.unidata_version == tables.UNICODE_VERSION
    namespace: dict[str, object] = {"__name__": "make_script_tables", "__file__": __file__}
    source = (ROOT / "tools" / "make_script_tables.py").read_text(encoding="utf-8")
    exec(compile(source, "make_script_tables.py", "exec"), namespace)
    namespace["TARGET"] = tmp_path / "tables.py"
    namespace["main"]()  # type: ignore[operator]
    written = (tmp_path / "tables.py").read_text(encoding="utf-8")
    assert written == Path(tables.__file__).read_text(encoding="utf-8")
