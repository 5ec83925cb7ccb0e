"""The encoder under the decision head: built from its config, run with our own masks."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final, cast

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional as F

from drut.errors import CheckpointFormatError
from drut_export.encoder_config import FULL, MODERNBERT, SLIDING, readable_config

MAJOR: Final = int(transformers.__version__.split(".")[0])
OLD_MASKS: Final = "_update_attention_mask"

_REPLACING: Final = threading.Lock()

Layout = tuple[Tensor | None, Tensor | None]


def build_encoder(raw: Mapping[str, Any]) -> nn.Module:
    """Build the encoder that `encoder/config.json` describes, in float32, without a pooling layer.

    Both spellings of a ModernBERT config are read. Weights are those the class starts from, or
    arbitrary inside `without_initial_weights`.

    Raises:
        CheckpointFormatError: transformers cannot build an encoder from it.
    """
    settings = readable_config(raw, transformers_major=MAJOR)
    kind = settings.pop("model_type", None)
    try:
        config = transformers.AutoConfig.for_model(kind, **settings)
        config.dtype = torch.float32
        return _without_pooler(config)
    except Exception as exc:
        raise CheckpointFormatError(
            f"transformers {transformers.__version__} cannot build the encoder of model type "
            f"{kind!r} ({exc}); check encoder/config.json"
        ) from exc


@contextmanager
def without_initial_weights() -> Iterator[None]:
    """Skip the random start values of modules made inside: all of them are about to be loaded.

    One thread at a time; modules that others make meanwhile get no start values either.
    """
    home = "transformers.initialization" if MAJOR >= 5 else "transformers.modeling_utils"
    # The functions are replaced for the whole process; two at once would put back what the other
    # had replaced, and no module would ever get start values again.
    with _REPLACING, import_module(home).no_init_weights():
        yield


def hidden_width(encoder: nn.Module) -> int:
    """Size of the encoder's hidden states."""
    return int(cast(Any, encoder).config.hidden_size)


def learned_positions(encoder: nn.Module) -> int | None:
    """Longest sequence of an encoder with a table of positions; None where they are computed."""
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # Encoders that number positions from behind the padding index waste the rows before.
            unused = 0 if module.padding_idx is None else module.padding_idx + 1
            return module.num_embeddings - unused
    return None


def takes_layer_masks(encoder: nn.Module) -> bool:
    """Whether the encoder is a ModernBERT, whose layers take the masks made here."""
    return bool(cast(Any, encoder).config.model_type == MODERNBERT)


def hidden_states(
    encoder: nn.Module, input_ids: Tensor, attention_mask: Tensor, layout: Layout | None
) -> Tensor:
    """Run the encoder: [rows, tokens] to float [rows, tokens, width].

    Args:
        encoder: a module of `build_encoder`.
        input_ids: int64 [rows, tokens].
        attention_mask: int64 [rows, tokens], 1 = real token.
        layout: position ids and option ids of the parallel layout, both int64 [rows, tokens].
    """
    run = cast(Any, encoder)
    if not takes_layer_masks(encoder):
        # A row of padding alone has no key to see, and kernels differ in what comes out then: it
        # sees its first token instead, which is real in every other row.
        seen = F.pad(attention_mask[:, 1:], (1, 0), value=1)
        return cast(Tensor, run(input_ids=input_ids, attention_mask=seen)[0])
    positions, masks = None, sequential_masks(attention_mask, _reach(encoder))
    if layout is not None:
        positions, masks = layout[0], parallel_masks(attention_mask, layout, _reach(encoder))
    if hasattr(encoder, OLD_MASKS):
        return _run_on_transformers_4(run, input_ids, positions, masks)
    output = run(input_ids=input_ids, attention_mask=masks, position_ids=positions)
    return cast(Tensor, output[0])


def full_mask(attention_mask: Tensor, places: Tensor | None = None) -> Tensor:
    """Which keys a query sees without window and layout: bool [rows, 1, queries, tokens].

    Real queries see real keys. Padded queries see everything: a query without any key would be
    NaN in some attention kernels, and NaN spreads to real rows in the next layer.

    Args:
        attention_mask: int64 [rows, tokens], 1 = real token.
        places: int64 [rows, queries], positions of the queries; None: all of them.
    """
    real = attention_mask.bool()
    asking = real if places is None else attention_mask.gather(1, places).bool()
    # Not [rows, 1, 1, tokens]: ONNX Runtime does not broadcast the query axis of a mask.
    return (real[:, None, :] | ~asking[:, :, None])[:, None]


def sequential_masks(attention_mask: Tensor, reach: int) -> dict[str, Tensor]:
    """Masks per layer type, bool [rows, 1, tokens, tokens]; the window includes `reach`."""
    index = torch.arange(attention_mask.shape[1], device=attention_mask.device)
    near = (index[:, None] - index[None, :]).abs() <= reach
    full = full_mask(attention_mask)
    return {FULL: full, SLIDING: full & near}


def parallel_masks(attention_mask: Tensor, layout: Layout, reach: int) -> dict[str, Tensor]:
    """Masks of the parallel layout: nobody sees another option, distances are of position ids."""
    position_ids, option_ids = layout
    if position_ids is None or option_ids is None:
        raise ValueError("a parallel checkpoint needs position_ids and option_ids")
    query, key = option_ids[:, :, None], option_ids[:, None, :]
    apart = (query > 0) & (key > 0) & (query != key)
    near = (position_ids[:, :, None] - position_ids[:, None, :]).abs() <= reach
    seen = full_mask(attention_mask) & ~apart[:, None]
    return {FULL: seen, SLIDING: seen & near[:, None]}


def _reach(encoder: nn.Module) -> int:
    return int(cast(Any, encoder).config.local_attention) // 2


def _run_on_transformers_4(
    encoder: Any, input_ids: Tensor, positions: Tensor | None, masks: dict[str, Tensor]
) -> Tensor:
    """Hand our masks to the ModernBERT of transformers 4, which would make its own."""
    setattr(encoder, OLD_MASKS, lambda *_, **__: (masks[FULL], masks[SLIDING]))
    try:
        ones = torch.ones_like(input_ids)
        output = encoder(input_ids=input_ids, attention_mask=ones, position_ids=positions)
        return cast(Tensor, output[0])
    finally:
        delattr(encoder, OLD_MASKS)


def _without_pooler(config: Any) -> nn.Module:
    build: Any = transformers.AutoModel.from_config
    try:
        encoder = build(config, attn_implementation="sdpa", add_pooling_layer=False)
    except TypeError:  # the class has no pooling layer to leave out
        encoder = build(config, attn_implementation="sdpa")
    return cast(nn.Module, encoder).float()
