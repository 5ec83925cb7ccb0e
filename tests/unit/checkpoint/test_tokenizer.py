import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from bundles import sha256
from drut.checkpoint.tokenizer import CheckpointTokenizer, read_tokenizer
from drut.errors import CheckpointFormatError, CheckpointNotFoundError, InvalidTextError
from golden_values import golden_cases
from property_settings import examples
from tiny_checkpoint import TINY, copy_of_tiny, tokenizer

ROLES = ("cls_token", "sep_token", "mask_token", "pad_token")


def config_file(directory: Path) -> Path:
    return directory / "tokenizer" / "tokenizer_config.json"


def change_config(directory: Path, **changes: Any) -> None:
    config = json.loads(config_file(directory).read_text(encoding="utf-8"))
    config_file(directory).write_text(json.dumps({**config, **changes}), encoding="utf-8")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return copy_of_tiny(tmp_path / "copy")


def test_the_special_tokens_are_those_of_the_checkpoint():
    read = tokenizer()
    assert (read.cls_id, read.sep_id, read.mask_id, read.pad_id) == (2, 3, 4, 0)
    assert read.mask_token == "[MASK]"
    assert read.vocab_size == 867


def test_the_digest_is_that_of_the_file():
    assert tokenizer().digest == sha256(TINY / "tokenizer" / "tokenizer.json")


@pytest.mark.parametrize(
    "case", golden_cases("tokenizer.json"), ids=lambda case: ascii(case["text"])
)
def test_texts_become_the_golden_ids(case: dict[str, Any]):
    assert tokenizer().encode(case["text"]) == case["ids"]
    assert tokenizer().decode(case["ids"]) == case["decoded"]


@examples(40)
@given(st.lists(st.text(max_size=20), max_size=6))
def test_many_texts_at_once_are_as_one_by_one(texts: list[str]):
    assert tokenizer().encode_all(texts) == [tokenizer().encode(text) for text in texts]


@examples(40)
@given(st.text(max_size=30))
def test_nothing_is_added_to_a_text(text: str):
    read = tokenizer()
    ids = read.encode(text)
    if "[" not in text:
        assert not {read.cls_id, read.sep_id, read.mask_id, read.pad_id} & set(ids)
    assert read.encode(text) == ids


def test_no_text_is_cut_or_padded_whatever_the_file_says(copy: Path):
    path = copy / "tokenizer" / "tokenizer.json"
    raw = Tokenizer.from_file(str(path))
    raw.enable_truncation(max_length=4)
    raw.enable_padding(length=10, pad_id=0)
    raw.save(str(path))
    read = read_tokenizer(copy)
    assert read.encode("a" * 50 + " b") == tokenizer().encode("a" * 50 + " b")
    assert read.encode("a") == tokenizer().encode("a")


def test_threads_share_one_tokenizer_without_harm():
    texts = ["a " * count for count in (3, 400, 20, 1000)] * 8
    serial = [tokenizer().encode(text) for text in texts]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(tokenizer().encode, texts)) == serial


@pytest.mark.parametrize("text", ["\ud83d", "ab\udc00c", "😀\ud800"])
def test_a_lone_surrogate_is_found_and_named(text: str):
    with pytest.raises(InvalidTextError, match=r"U\+D[8-F][0-9A-F]{2} at character"):
        tokenizer().encode_all(["fine", text])


def test_the_place_of_a_surrogate_is_told():
    with pytest.raises(InvalidTextError, match=r"U\+DC00 at character 2") as caught:
        tokenizer().encode("ab\udc00c")
    str(caught.value).encode()  # the message itself can be written


@pytest.mark.parametrize(
    "text", ["", "\x00", "é", "e\u0301", "😀", "\u202eabc", "\ufeff", "\r\n\t"]
)
def test_other_odd_texts_are_read(text: str):
    assert isinstance(tokenizer().encode(text), list)


def test_ids_become_text_with_special_tokens_kept():
    read = tokenizer()
    assert read.decode(read.encode("hello [SEP] there")) == "hello [SEP] there"
    assert read.decode([]) == ""


def test_the_text_of_special_tokens_can_be_taken_out():
    cleaned = tokenizer().without_special_tokens("a [SEP][CLS] [MASK]b [sep] [OTHER]")
    assert cleaned == "a     b [sep] [OTHER]"


def test_the_longest_special_token_goes_first(tmp_path: Path):
    copy = copy_of_tiny(tmp_path / "c")
    path = copy / "tokenizer" / "tokenizer.json"
    raw = Tokenizer.from_file(str(path))
    raw.add_special_tokens(["<x>", "<x><y>"])
    raw.save(str(path))
    assert read_tokenizer(copy).without_special_tokens("a<x><y>b") == "a b"


def test_the_files_are_never_written(copy: Path):
    change_config(copy, tokenizer_class="TokenizersBackend", extra_special_tokens=["<a>"])
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in copy.rglob("*.json")}
    read_tokenizer(copy)
    assert before == {
        path: (path.read_bytes(), path.stat().st_mtime_ns) for path in copy.rglob("*.json")
    }


def test_a_special_token_may_be_an_object(copy: Path):
    change_config(copy, mask_token={"content": "[MASK]", "lstrip": True, "special": True})
    assert read_tokenizer(copy).mask_id == 4


def test_the_tokens_map_is_the_fallback(copy: Path):
    tokens = {role: json.loads(config_file(copy).read_text())[role] for role in ROLES}
    (copy / "tokenizer" / "special_tokens_map.json").write_text(json.dumps(tokens))
    config_file(copy).unlink()
    assert read_tokenizer(copy).cls_id == 2


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("value", [None, "", 5, {}, {"content": None}])
def test_a_checkpoint_without_a_special_token_is_refused_when_opened(
    copy: Path, role: str, value: Any
):
    change_config(copy, **{role: value})
    with pytest.raises(CheckpointFormatError, match=role):
        read_tokenizer(copy)


@pytest.mark.parametrize("role", ROLES)
def test_a_special_token_outside_the_vocabulary_is_refused(copy: Path, role: str):
    change_config(copy, **{role: "[NOPE]"})
    with pytest.raises(CheckpointFormatError, match=rf"{role} '\[NOPE\]'"):
        read_tokenizer(copy)


def test_a_missing_tokenizer_is_named(copy: Path):
    (copy / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(CheckpointNotFoundError, match=r"tokenizer\.json"):
        read_tokenizer(copy)


@pytest.mark.parametrize("content", [b"", b"{}", b"garbage", b"\xff"])
def test_a_damaged_tokenizer_is_a_format_error(copy: Path, content: bytes):
    (copy / "tokenizer" / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointFormatError, match=r"tokenizer\.json"):
        read_tokenizer(copy)


def test_a_cut_tokenizer_is_a_format_error(copy: Path):
    path = copy / "tokenizer" / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointFormatError, match=r"tokenizer\.json"):
        read_tokenizer(copy)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_tokenizer_config_is_a_format_error(copy: Path, content: str):
    config_file(copy).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointFormatError, match=r"tokenizer_config\.json"):
        read_tokenizer(copy)


def test_the_class_itself_switches_cutting_off():
    raw = Tokenizer.from_file(str(TINY / "tokenizer" / "tokenizer.json"))
    raw.enable_truncation(max_length=2)
    tokens = dict(zip(ROLES, ("[CLS]", "[SEP]", "[MASK]", "[PAD]"), strict=True))
    made = CheckpointTokenizer(raw, tokens, "digest")
    assert len(made.encode("a b c d")) > 2
    assert made.digest == "digest"
