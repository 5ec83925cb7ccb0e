from typing import Any

import numpy as np
import pytest

from drut.errors import CheckpointFormatError
from drut_export.encoder_config import FULL, SLIDING, readable_config
from drut_export.encoders import build_encoder, learned_positions
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch
from small_models import modernbert_config, random_model, run

BATCH = make_batch(TrialShape(2, 60, 3), ModelFacts(vocabulary=800))
LAYERS = [FULL, SLIDING, SLIDING, FULL]


def old_spelling(**changes: Any) -> dict[str, Any]:
    config = modernbert_config()
    del config["layer_types"], config["rope_parameters"]
    old = {"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0}
    return {**config, **old, "local_rope_theta": 10000.0, **changes}


def logits(config: dict[str, Any]) -> np.ndarray:
    return run(random_model(config), BATCH)[0]


def test_both_spellings_build_the_same_encoder() -> None:
    assert np.array_equal(logits(modernbert_config()), logits(old_spelling()))


@pytest.mark.parametrize(
    "changes",
    [
        {"local_rope_theta": 160000.0},
        {"global_rope_theta": 500.0},
        {"global_attn_every_n_layers": 2},
        {"local_attention": 8},
    ],
)
def test_no_setting_of_the_old_spelling_is_ignored(changes: dict[str, Any]) -> None:
    assert not np.allclose(logits(old_spelling()), logits(old_spelling(**changes)), atol=1e-3)


def test_no_sliding_theta_means_the_global_one() -> None:
    none = logits(old_spelling(local_rope_theta=None))
    assert np.array_equal(none, logits(old_spelling(local_rope_theta=160000.0)))


def test_flat_rope_parameters_hold_for_both_layer_types() -> None:
    flat = modernbert_config(rope_parameters={"rope_type": "default", "rope_theta": 5000.0})
    both = {kind: {"rope_type": "default", "rope_theta": 5000.0} for kind in (FULL, SLIDING)}
    assert np.array_equal(logits(flat), logits(modernbert_config(rope_parameters=both)))


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_stored_dtype_is_not_followed(key: str) -> None:
    model = random_model(modernbert_config(**{key: "float16"}))
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.float32"}


def test_transformers_4_is_told_in_its_own_words() -> None:
    settings = readable_config(
        modernbert_config(
            rope_parameters={
                FULL: {"rope_type": "default", "rope_theta": 7.0},
                SLIDING: {"rope_type": "default", "rope_theta": 9.0},
            }
        ),
        transformers_major=4,
    )
    assert settings["global_attn_every_n_layers"] == 3
    assert (settings["global_rope_theta"], settings["local_rope_theta"]) == (7.0, 9.0)
    assert not {"layer_types", "rope_parameters"} & set(settings)


@pytest.mark.parametrize(
    ("layers", "step"),
    [(LAYERS, 3), ([FULL] * 3, 1), ([FULL, SLIDING, SLIDING], 3), ([FULL, SLIDING, FULL], 2)],
)
def test_regular_layers_are_one_in_every_n(layers: list[str], step: int) -> None:
    settings = readable_config(modernbert_config(layer_types=layers), transformers_major=4)
    assert settings["global_attn_every_n_layers"] == step


@pytest.mark.parametrize("layers", [[SLIDING, FULL], [FULL, FULL, SLIDING], [SLIDING, SLIDING]])
def test_irregular_layers_are_refused_where_they_cannot_be_said(layers: list[str]) -> None:
    with pytest.raises(CheckpointFormatError, match="install transformers 5"):
        readable_config(modernbert_config(layer_types=layers), transformers_major=4)
    assert readable_config(modernbert_config(layer_types=layers), transformers_major=5)


def test_scaled_rotary_angles_are_refused_where_they_cannot_be_said() -> None:
    rope = {FULL: {"rope_type": "linear", "factor": 2.0}}
    with pytest.raises(CheckpointFormatError, match="linear"):
        readable_config(modernbert_config(rope_parameters=rope), transformers_major=4)


@pytest.mark.parametrize(
    "config", [{}, {"model_type": "no-such-model"}, modernbert_config(hidden_size="wide")]
)
def test_a_config_nobody_can_build_is_an_error(config: dict[str, Any]) -> None:
    with pytest.raises(CheckpointFormatError, match="cannot build the encoder"):
        build_encoder(config)


@pytest.mark.parametrize(("kind", "positions"), [("bert", 40), ("roberta", 38)])
def test_learned_positions_limit_a_sequence(kind: str, positions: int) -> None:
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = {"model_type": kind, "vocab_size": 50, "intermediate_size": 32, "pad_token_id": 1}
    encoder = build_encoder({**config, **sizes, "max_position_embeddings": 40})
    # RoBERTa numbers positions from behind its padding index.
    assert learned_positions(encoder) == positions


def test_computed_positions_do_not_limit_a_sequence() -> None:
    assert learned_positions(build_encoder(modernbert_config())) is None
