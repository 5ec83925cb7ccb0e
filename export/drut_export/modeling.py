"""The decision model in torch: an encoder, a small head, a scorer and an act head.

State-dict keys are those of the checkpoint format, so a checkpoint's weights load as they are.
"""

from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from drut.errors import CheckpointFormatError
from drut.tensors import MASKED_LOGIT, QTYPES
from drut_export.encoders import full_mask, hidden_states, hidden_width, takes_layer_masks

HEAD_CHANNELS: Final = 64
ACT_HIDDEN: Final = 256
ACT_FEATURES: Final = 4


class HeadAttention(nn.Module):
    """Self-attention of a head layer, under the parameter names of `nn.MultiheadAttention`."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // HEAD_CHANNELS)
        if width % self.heads:
            raise CheckpointFormatError(
                f"the encoder's hidden size {width} is not a multiple of the head's "
                f"{self.heads} attention heads; this format needs a multiple"
            )
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * width))
        self.out_proj = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, hidden: Tensor, mask: Tensor, places: Tensor | None = None) -> Tensor:
        """Attend where `mask` is true: bool [rows, 1, places, tokens].

        Args:
            hidden: [rows, tokens, width], what is attended to.
            mask: for each place, which tokens it sees.
            places: int64 [rows, places], the positions that ask; None: all of them.

        Returns:
            [rows, places, width].
        """
        width = hidden.shape[-1]
        if places is None:
            mixed = F.linear(hidden, self.in_proj_weight, self.in_proj_bias)
            query, key, value = map(self._by_head, mixed.chunk(3, dim=-1))
        else:
            sizes = [width, 2 * width]
            ask, told = torch.split(self.in_proj_weight, sizes)
            ask_bias, told_bias = torch.split(self.in_proj_bias, sizes)
            query = self._by_head(F.linear(gather(hidden, places), ask, ask_bias))
            mixed = F.linear(hidden, told, told_bias)
            key, value = map(self._by_head, mixed.chunk(2, dim=-1))
        seen = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return cast(Tensor, self.out_proj(seen.transpose(1, 2).flatten(2)))

    def _by_head(self, mixed: Tensor) -> Tensor:
        """Map [rows, tokens, width] to [rows, heads, tokens, channels]."""
        rows, tokens, width = mixed.shape
        return mixed.view(rows, tokens, self.heads, width // self.heads).transpose(1, 2)


class HeadLayer(nn.Module):
    """Pre-norm transformer layer with ReLU and a feed-forward part four times as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.self_attn = HeadAttention(width)
        self.linear1 = nn.Linear(width, 4 * width)
        self.linear2 = nn.Linear(4 * width, width)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, hidden: Tensor, mask: Tensor, places: Tensor | None = None) -> Tensor:
        """Map [rows, tokens, width] to the same shape, or to [rows, places, width]."""
        seen = self.self_attn(self.norm1(hidden), mask, places)
        hidden = seen + (hidden if places is None else gather(hidden, places))
        inner = F.relu(self.linear1(self.norm2(hidden)))
        return cast(Tensor, hidden + self.linear2(inner))


class DecisionHead(nn.Module):
    """The head layers on top of the encoder; with none of them it passes its input on."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(HeadLayer(width) for _ in range(layers))

    def forward(
        self, hidden: Tensor, attention_mask: Tensor, places: Tensor | None = None
    ) -> Tensor:
        """Map [rows, tokens, width] to the same shape, or to [rows, places, width].

        The last layer asks at `places` alone and still sees every token, so its answers there are
        those of the full computation.

        Args:
            hidden: [rows, tokens, width].
            attention_mask: int64 [rows, tokens], 1 = real token.
            places: int64 [rows, places], the positions that are needed; None: all of them.
        """
        if not len(self.layers):
            return hidden if places is None else gather(hidden, places)
        *first, last = self.layers
        for layer in first:
            hidden = layer(hidden, full_mask(attention_mask))
        return cast(Tensor, last(hidden, full_mask(attention_mask, places), places))


class DecisionModel(nn.Module):
    """Scores the options of each row and recommends an action.

    Args:
        encoder: a module built by `drut_export.encoders.build_encoder`.
        head_layers: number of decision-head layers, 0 for none.
        actions: outputs of the act head.
        parallel: whether rows come in the parallel option layout.

    Raises:
        CheckpointFormatError: the encoder cannot serve the head or the option layout.
    """

    temperature: Tensor

    def __init__(
        self, encoder: nn.Module, *, head_layers: int, actions: int, parallel: bool = False
    ) -> None:
        super().__init__()
        if parallel and not takes_layer_masks(encoder):
            raise CheckpointFormatError(
                "option_layout 'parallel' needs a ModernBERT encoder, "
                f"the checkpoint has {type(encoder).__name__}"
            )
        width = hidden_width(encoder)
        self.parallel = parallel
        self.actions = actions
        self.encoder = encoder
        self.head = DecisionHead(width, head_layers)
        self.type_emb = nn.Embedding(len(QTYPES), width)
        self.scorer = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )
        self.act_head = nn.Sequential(
            nn.Linear(width + ACT_FEATURES, ACT_HIDDEN), nn.GELU(), nn.Linear(ACT_HIDDEN, actions)
        )
        # The format stores this buffer; the temperatures in force are those of the config.
        self.register_buffer("temperature", torch.ones(3))
        nn.init.normal_(self.type_emb.weight, std=0.02)

    def forward(  # noqa: PLR0913, PLR0917 - the graph's inputs
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        marker_pos: Tensor,
        marker_mask: Tensor,
        qtype: Tensor,
        position_ids: Tensor | None = None,
        option_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return option logits [rows, options] and act logits [rows, actions], both float32.

        Args:
            input_ids: int64 [rows, tokens], padded on the right.
            attention_mask: int64 [rows, tokens], 1 = real token.
            marker_pos: int64 [rows, options], position of each option's marker token.
            marker_mask: bool [rows, options], false where a row has fewer options.
            qtype: int64 [rows], see `drut.tensors.QTYPES`.
            position_ids: int64 [rows, tokens], parallel layout only.
            option_ids: int64 [rows, tokens], parallel layout only.
        """
        hidden = self.encode(input_ids, attention_mask, position_ids, option_ids)
        decided = self.decide(hidden, attention_mask, qtype, needed_places(marker_pos))
        logits = self.score(decided[:, 1:], marker_mask)
        features = act_features(logits, marker_mask)
        act_logits = self.act_head(torch.cat([decided[:, 0].float(), features], dim=-1))
        return logits, act_logits.float()

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor | None = None,
        option_ids: Tensor | None = None,
    ) -> Tensor:
        """Return the encoder's hidden states [rows, tokens, width]."""
        layout = (position_ids, option_ids) if self.parallel else None
        return hidden_states(self.encoder, input_ids, attention_mask, layout)

    def decide(
        self,
        hidden: Tensor,
        attention_mask: Tensor,
        qtype: Tensor,
        places: Tensor | None = None,
    ) -> Tensor:
        """Add the question type to the encoder's states and run the head layers over them.

        Returns:
            [rows, places, width], or [rows, tokens, width] without `places`.
        """
        hidden = hidden + self.type_emb(qtype)[:, None]
        return cast(Tensor, self.head(hidden, attention_mask, places))

    def score(self, markers: Tensor, marker_mask: Tensor) -> Tensor:
        """Score markers: float32 [rows, options], `MASKED_LOGIT` where the mask is false.

        Args:
            markers: [rows, options, width], the head's states at the markers.
            marker_mask: bool [rows, options].
        """
        logits = self.scorer(markers).squeeze(-1).float()
        return cast(Tensor, logits.masked_fill(~marker_mask, MASKED_LOGIT))


def needed_places(marker_pos: Tensor) -> Tensor:
    """The positions whose states are read: the first token, then the markers.

    Args:
        marker_pos: int64 [rows, options]; negative ones are read as the first token.

    Returns:
        int64 [rows, 1 + options].
    """
    return F.pad(marker_pos.clamp(min=0), (1, 0))


def gather(hidden: Tensor, places: Tensor) -> Tensor:
    """Pick rows of [rows, tokens, width] by int64 [rows, places]: [rows, places, width]."""
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


def act_features(logits: Tensor, marker_mask: Tensor) -> Tensor:
    """Shape of the options' distribution: [best, lead, entropy, count], float32 [rows, 4].

    The added zero column is the runner-up of a row with one option.
    """
    shares = logits.softmax(dim=-1)
    two = F.pad(shares, (0, 1)).topk(2, dim=-1).values
    count = marker_mask.sum(dim=-1).clamp(min=2).float()
    entropy = -(shares * shares.clamp(min=1e-9).log()).sum(dim=-1) / count.log()
    return torch.stack([two[:, 0], two[:, 0] - two[:, 1], entropy, count / 255.0], dim=-1)
