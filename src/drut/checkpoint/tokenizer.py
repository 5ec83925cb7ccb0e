"""The checkpoint's tokenizer: read with its repairs in memory, never changed afterwards."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from drut.checkpoint.config import TOKENIZER_DIR, read_json_object
from drut.errors import CheckpointFormatError, CheckpointNotFoundError, InvalidTextError

TOKENIZER_NAME: Final = "tokenizer.json"
TOKENIZER_CONFIG_NAME: Final = "tokenizer_config.json"
PARALLEL_CHARACTERS: Final = 2048
"""Characters from which texts are tokenised on several threads."""

_SPECIAL: Final = ("cls_token", "sep_token", "mask_token", "pad_token")


class CheckpointTokenizer:
    """Text to token ids, without special tokens, truncation or padding.

    One Rust object is shared by all threads. Its truncation and padding are switched off once,
    here, and no method of this class touches them: cutting and padding happen on ids.
    """

    def __init__(
        self, tokenizer: Tokenizer, special_tokens: Mapping[str, str], digest: str
    ) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        # Special tokens are handled by position, not by the post-processor.
        self._tokenizer = tokenizer
        self.digest = digest  # SHA-256 of tokenizer.json
        self.mask_token = special_tokens["mask_token"]
        self.cls_id = self._id_of("cls_token", special_tokens)
        self.sep_id = self._id_of("sep_token", special_tokens)
        self.mask_id = self._id_of("mask_token", special_tokens)
        self.pad_id = self._id_of("pad_token", special_tokens)
        special = sorted(
            (
                token.content
                for token in tokenizer.get_added_tokens_decoder().values()
                if token.special
            ),
            key=len,
            reverse=True,
        )
        self._special_pattern = re.compile("|".join(map(re.escape, special)) or r"(?!)")

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str) -> list[int]:
        """Token ids of one text.

        Raises:
            InvalidTextError: the text holds a lone surrogate.
        """
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of several texts; the interpreter lock is free meanwhile."""
        # Handing a few short texts to the thread pool takes longer than reading them.
        together = len(texts) if sum(map(len, texts)) > PARALLEL_CHARACTERS else 1
        ids: list[list[int]] = []
        try:
            for start in range(0, len(texts), together or 1):
                part = list(texts[start : start + together])
                encodings = self._tokenizer.encode_batch_fast(part, add_special_tokens=False)
                ids += [encoding.ids for encoding in encodings]
        except (TypeError, UnicodeEncodeError) as exc:
            raise InvalidTextError(_surrogate_message(texts)) from exc
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens kept."""
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    def without_special_tokens(self, text: str) -> str:
        """Replace the text of every special token by one space."""
        return self._special_pattern.sub(" ", text)

    def _id_of(self, role: str, special_tokens: Mapping[str, str]) -> int:
        token_id = self._tokenizer.token_to_id(special_tokens[role])
        if token_id is None:
            raise CheckpointFormatError(
                f"the tokenizer's {role} {special_tokens[role]!r} is not in its vocabulary"
            )
        return int(token_id)


def read_tokenizer(directory: Path) -> CheckpointTokenizer:
    """Read `tokenizer/` of a checkpoint or bundle directory.

    Upstream rewrites `tokenizer_config.json` on disk where newer tools have left spellings that
    older ones refuse; only the four special tokens are read here, so nothing needs rewriting.

    Raises:
        CheckpointNotFoundError: a tokenizer file is missing.
        CheckpointFormatError: a file is damaged or lacks the cls, sep, mask or pad token.
    """
    folder = directory / TOKENIZER_DIR
    path = folder / TOKENIZER_NAME
    if not path.is_file():
        raise CheckpointNotFoundError(
            f"{folder} has no {TOKENIZER_NAME}; a decision checkpoint needs a fast tokenizer there"
        )
    content = path.read_bytes()
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as exc:
        raise CheckpointFormatError(f"{path} is not a readable tokenizer ({exc})") from exc
    return CheckpointTokenizer(
        tokenizer, _special_tokens(folder), hashlib.sha256(content).hexdigest()
    )


def _special_tokens(folder: Path) -> dict[str, str]:
    config_path = folder / TOKENIZER_CONFIG_NAME
    config = read_json_object(config_path) if config_path.is_file() else {}
    map_path = folder / "special_tokens_map.json"
    fallback = read_json_object(map_path) if map_path.is_file() else {}
    found: dict[str, str] = {}
    for role in _SPECIAL:
        content = _content(config[role] if role in config else fallback.get(role))
        if content is None:
            raise CheckpointFormatError(
                f"{folder} names no {role}; a decision checkpoint needs the cls, sep, mask and pad "
                f"tokens in {TOKENIZER_CONFIG_NAME}"
            )
        found[role] = content
    return found


def _content(token: Any) -> str | None:
    """Text of a token, which files store as a string or as an object with `content`."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) and token else None


def _surrogate_message(texts: Sequence[str]) -> str:
    for text in texts:
        for index, character in enumerate(text):
            if "\ud800" <= character <= "\udfff":
                around = json.dumps(text[max(0, index - 10) : index + 10])
                return (
                    f"a text holds the lone surrogate U+{ord(character):04X} at character {index} "
                    f"(near {around}); replace it, for instance by "
                    "text.encode('utf-8', 'replace').decode()"
                )
    return "a text cannot be read by the tokenizer"
