from pathlib import Path

import pytest

from drut_export.licence import licence_of

ROOT = Path(__file__).parents[3]
APACHE = (ROOT / "LICENSE").read_text(encoding="utf-8")
MIT = """MIT License

Copyright (c) 2026 somebody

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including ...

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.
"""


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / name.replace("_md", ".md")).write_text(text, encoding="utf-8")
    return directory


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("license: apache-2.0", "Apache-2.0"),
        ("license: MIT", "MIT"),
        ("license: 'cc-by-4.0'", "CC-BY-4.0"),
        ("license: gemma", "gemma"),
        ("license: other\nlicense_name: house-licence", "house-licence"),
        ("license: other", None),
        ("license: [mit, apache-2.0]", None),
        ("license:", None),
        ("tags: [x]", None),
        ("license: {", None),
        ("- license", None),
    ],
)
def test_the_front_matter_of_the_card_names_it(
    written: str, name: str | None, tmp_path: Path
) -> None:
    write(tmp_path, README_md=f"---\nlanguage: en\n{written}\n---\n# A model\nlicense: no\n")
    if written == "- license":
        write(tmp_path, README_md=f"---\n{written}\n---\n")
    assert licence_of(tmp_path) == name


def test_a_card_without_front_matter_says_nothing(tmp_path: Path) -> None:
    assert licence_of(write(tmp_path, README_md="# A model\n\nlicense: mit\n\n---\n")) is None


@pytest.mark.parametrize(("text", "name"), [(APACHE, "Apache-2.0"), (MIT, "MIT")])
def test_a_known_text_is_recognised_however_it_is_wrapped(
    text: str, name: str, tmp_path: Path
) -> None:
    assert licence_of(write(tmp_path, LICENSE=text)) == name
    assert licence_of(write(tmp_path, LICENSE=" ".join(text.split()))) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "All rights reserved.",
        "MIT",
        APACHE[:300],
        "Only for pets. " * 40 + APACHE,
        "Commons Clause License Condition\n" + APACHE,
    ],
)
def test_what_is_not_certain_is_not_guessed(text: str, tmp_path: Path) -> None:
    assert licence_of(write(tmp_path, LICENSE=text)) is None


def test_two_licences_are_none(tmp_path: Path) -> None:
    assert licence_of(write(tmp_path, LICENSE=APACHE)) == "Apache-2.0"
    assert licence_of(write(tmp_path, LICENSE_code=MIT)) is None


def test_the_card_goes_before_the_text(tmp_path: Path) -> None:
    card = "---\r\nlicense: cc-by-4.0\r\n---\r\n"
    assert licence_of(write(tmp_path, LICENSE=APACHE, README_md=card)) == "CC-BY-4.0"


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert licence_of(tmp_path) is None
    (tmp_path / "README.md").write_bytes(b"---\nlicense: \xff\xfe\n---\n")
    (tmp_path / "LICENSE").write_bytes(b"\xff\xfe")
    assert licence_of(tmp_path) != "Apache-2.0"
