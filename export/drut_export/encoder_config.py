"""`encoder/config.json` in the spelling that the installed transformers reads.

ModernBERT configs come in two spellings. What a version does not know it ignores without a word
and takes its defaults instead, so the differences are settled here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from drut.errors import CheckpointFormatError

MODERNBERT: Final = "modernbert"
FULL: Final = "full_attention"
SLIDING: Final = "sliding_attention"

OLD_THETAS: Final = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
THETA_DEFAULTS: Final = {FULL: 160_000.0, SLIDING: 10_000.0}
DROPPED: Final = ("dtype", "torch_dtype", "_attn_implementation", "attn_implementation")


def readable_config(raw: Mapping[str, Any], *, transformers_major: int) -> dict[str, Any]:
    """Return the settings for one major version of transformers, the stored dtype left out.

    Raises:
        CheckpointFormatError: the config says something this version cannot express.
    """
    settings = {key: value for key, value in raw.items() if key not in DROPPED}
    if settings.get("model_type") != MODERNBERT:
        return settings
    settings["rope_parameters"] = _rope_by_type(settings)
    if transformers_major < 5:
        _spell_old(settings)
    return settings


def _rope_by_type(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Rotary parameters per layer type, from the new spelling, a flat one, or the old one."""
    given = settings.get("rope_parameters") or {}
    if not {FULL, SLIDING} & set(given):
        given = {FULL: given, SLIDING: given}
    by_type = {}
    for kind, key in OLD_THETAS.items():
        # `local_rope_theta: null` means the global one.
        theta = settings.get(key, THETA_DEFAULTS[kind]) or settings.get(OLD_THETAS[FULL])
        own = {"rope_type": "default", "rope_theta": theta or THETA_DEFAULTS[FULL]}
        by_type[kind] = own | dict(given.get(kind) or {})
    return by_type


def _spell_old(settings: dict[str, Any]) -> None:
    for kind, rope in settings.pop("rope_parameters").items():
        if rope["rope_type"] != "default":
            raise CheckpointFormatError(
                f"transformers 4 cannot give {kind} layers the rotary type "
                f"{rope['rope_type']!r}; install transformers 5"
            )
        settings[OLD_THETAS[kind]] = rope["rope_theta"]
    layer_types = settings.pop("layer_types", None)
    if layer_types is not None:
        settings["global_attn_every_n_layers"] = _every(layer_types)


def _every(layer_types: Sequence[str]) -> int:
    """The n for which layer i is full exactly if n divides i."""
    full = [index for index, kind in enumerate(layer_types) if kind == FULL]
    step = full[1] if len(full) > 1 else max(1, len(layer_types))
    if full != list(range(0, len(layer_types), step)):
        raise CheckpointFormatError(
            "transformers 4 cannot express the encoder's layer_types, which are not one full "
            f"layer in every n ({', '.join(layer_types)}); install transformers 5"
        )
    return step
