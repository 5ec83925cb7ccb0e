"""The smaller vocabulary keeps what texts are made of."""

import json
from collections import Counter

import torch
from starter.checkpoint import Parts
from starter.vocabulary import (
    BANK_WEIGHT,
    choose_tokens,
    count_tokens,
    cut_embeddings,
    cut_tokenizer,
    unchanged_share,
)


def test_a_use_in_the_bank_counts_more(tiny_tokenizer):
    tokenizer = Parts({}, tiny_tokenizer).build_tokenizer()
    counts = count_tokens(tokenizer, ["billing"], ["billing parcel", "parcel"])
    assert counts[tokenizer.token_to_id("billing")] == BANK_WEIGHT + 1
    assert counts[tokenizer.token_to_id("parcel")] == 2


def test_special_tokens_and_single_characters_stay():
    vocabulary = {"[PAD]": 0, "a": 1, "##b": 2, "often": 3, "rare": 4, "[MASK]": 5, "never": 6}
    counts = Counter({3: 9, 4: 1})
    assert choose_tokens(vocabulary, counts, size=5) == [0, 1, 2, 3, 5]
    assert choose_tokens(vocabulary, counts, size=1) == [0, 1, 2, 5]


def test_a_cut_tokenizer_splits_kept_words_as_before(tmp_path, tiny_tokenizer):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(tiny_tokenizer), encoding="utf-8")
    before = Parts({}, tiny_tokenizer).build_tokenizer()
    dropped = before.token_to_id("hurry")
    kept = [number for number in range(before.get_vocab_size()) if number != dropped]
    after = Parts({}, cut_tokenizer(path, kept)).build_tokenizer()
    assert after.get_vocab_size() == before.get_vocab_size() - 1
    text = "where is my parcel"
    assert after.encode(text).tokens == before.encode(text).tokens
    assert after.encode("hurry").tokens[:2] == ["h", "##u"]
    assert sorted(after.get_vocab().values()) == list(range(after.get_vocab_size()))
    assert unchanged_share(before, after, ["my hurry", "my parcel"]) == 0.75


def test_embeddings_follow_their_tokens():
    weight = torch.arange(8.0).reshape(4, 2)
    assert cut_embeddings(weight, [0, 3]).tolist() == [[0.0, 1.0], [6.0, 7.0]]
