"""The smaller vocabulary: the WordPiece tokens that English text really uses."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from torch import Tensor

from starter.wordnet import WordNet

SIZE: Final = 16_000
BANK_WEIGHT: Final = 20  # one use in the bank counts like this many in WordNet
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION: Final = "##"


def wordnet_texts(net: WordNet) -> list[str]:
    """Words, definitions and example sentences of every meaning."""
    texts: list[str] = []
    for synset in net.synsets.values():
        texts += [" ".join(synset.words), synset.definition, *synset.examples]
    return texts


def count_tokens(
    tokenizer: Tokenizer, bank_texts: Sequence[str], other_texts: Sequence[str]
) -> Counter[int]:
    """How often each token id is used, the bank's uses counted `BANK_WEIGHT` times."""
    counts: Counter[int] = Counter()
    for texts, weight in ((bank_texts, BANK_WEIGHT), (other_texts, 1)):
        for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False):
            for token in encoding.ids:
                counts[token] += weight
    return counts


def choose_tokens(vocabulary: dict[str, int], counts: Counter[int], size: int = SIZE) -> list[int]:
    """Ids to keep, ascending: special tokens, single characters, then the most used ones.

    Single characters must stay, or words made of rare ones would become unknown tokens.
    """
    always = {
        number
        for token, number in vocabulary.items()
        if token in SPECIAL or len(token.removeprefix(CONTINUATION)) == 1
    }
    rest = sorted(
        (number for number in vocabulary.values() if number not in always),
        key=lambda number: (-counts[number], number),
    )
    return sorted(always | set(rest[: max(0, size - len(always))]))


def cut_tokenizer(source: Path, kept: Sequence[int]) -> dict[str, Any]:
    """The content of `tokenizer.json` with only the kept tokens, renumbered in order."""
    raw: dict[str, Any] = json.loads(source.read_text(encoding="utf-8"))
    number = {old: new for new, old in enumerate(kept)}
    vocabulary: dict[str, int] = raw["model"]["vocab"]
    raw["model"]["vocab"] = {
        token: number[old]
        for token, old in sorted(vocabulary.items(), key=lambda item: item[1])
        if old in number
    }
    for token in raw["added_tokens"]:
        token["id"] = number[token["id"]]
    _renumber_template(raw.get("post_processor"), raw["model"]["vocab"])
    raw["truncation"] = raw["padding"] = None
    return raw


def cut_embeddings(weight: Tensor, kept: Sequence[int]) -> Tensor:
    """Rows of the kept tokens, float32 [tokens, width]."""
    return weight.detach()[torch.tensor(list(kept))].clone()


def unchanged_share(old: Tokenizer, new: Tokenizer, texts: Iterable[str]) -> float:
    """Share of the texts' words that are split into the same pieces as before."""
    words = [word for text in texts for word in text.lower().split()]
    before = old.encode_batch(words, add_special_tokens=False)
    after = new.encode_batch(words, add_special_tokens=False)
    same = sum(a.tokens == b.tokens for a, b in zip(before, after, strict=True))
    return same / max(1, len(words))


def _renumber_template(processor: Any, vocabulary: dict[str, int]) -> None:
    if not processor:
        return
    for entry in processor.get("special_tokens", {}).values():
        entry["ids"] = [vocabulary[token] for token in entry["tokens"]]
    for key in ("sep", "cls"):
        if isinstance(processor.get(key), list):
            processor[key] = [processor[key][0], vocabulary[processor[key][0]]]
