import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from drut.errors import CheckpointFormatError
from drut.tensors import MASKED_LOGIT, QTYPES
from drut_export.encoders import FULL, SLIDING, full_mask, parallel_masks, sequential_masks
from drut_export.modeling import act_features, gather, needed_places
from drut_export.trial_batches import ModelFacts, TrialShape, make_batch, single_rows
from golden_values import GOLDEN, golden_cases
from small_models import BERT, modernbert_config, random_model, run, tensors

FACTS = ModelFacts(vocabulary=50)
TRIAL = make_batch(TrialShape(3, 30, 3), FACTS)
CLOSE = {"rtol": 0, "atol": 2e-5}


def test_state_dict_has_the_keys_and_shapes_of_the_format() -> None:
    golden = json.loads((GOLDEN / "state_dict.json").read_text(encoding="utf-8"))
    expected = {name: shape for name, (shape, _) in golden["tiny-checkpoint"].items()}
    state = random_model().state_dict()
    assert {name: list(tensor.shape) for name, tensor in state.items()} == expected


def test_no_head_layers_means_no_head_keys() -> None:
    model = random_model(head_layers=0)
    assert not [name for name in model.state_dict() if name.startswith("head.")]
    assert np.isfinite(run(model, TRIAL)[0]).all()


def test_outputs_are_float32_in_the_shapes_of_the_contract() -> None:
    options, actions = run(random_model(actions=4), TRIAL)
    assert (options.dtype, options.shape) == (np.float32, TRIAL.marker_mask.shape)
    assert (actions.dtype, actions.shape) == (np.float32, (3, 4))
    assert (options[~TRIAL.marker_mask] == np.float32(MASKED_LOGIT)).all()


def test_a_row_answers_alone_as_it_does_in_a_padded_batch() -> None:
    model = random_model()
    together = run(model, TRIAL)
    for index, alone in single_rows(TRIAL):
        options, actions = run(model, alone)
        np.testing.assert_allclose(options[0], together[0][index, : options.shape[1]], **CLOSE)
        np.testing.assert_allclose(actions[0], together[1][index], **CLOSE)


def test_the_act_head_sees_one_option_the_same_in_any_width() -> None:
    one = act_features(torch.tensor([[2.5]]), torch.tensor([[True]]))
    wide = act_features(
        torch.tensor([[2.5, MASKED_LOGIT, MASKED_LOGIT]]), torch.tensor([[True, False, False]])
    )
    assert torch.equal(one, wide)
    np.testing.assert_allclose(one, [[1.0, 1.0, 0.0, 2 / 255]], atol=1e-7)


def test_act_features_of_two_even_options() -> None:
    features = act_features(torch.zeros(1, 2), torch.ones(1, 2, dtype=torch.bool))
    np.testing.assert_allclose(features, [[0.5, 0.0, 1.0, 2 / 255]], atol=1e-6)


def test_every_question_type_has_its_own_answer() -> None:
    model = random_model()
    answers = [
        run(model, replace(TRIAL, qtype=np.full(3, value)))[0].tobytes()
        for value in QTYPES.values()
    ]
    assert len(set(answers)) == len(QTYPES)


def test_a_negative_marker_position_is_read_as_the_first_token() -> None:
    model = random_model()
    positions = TRIAL.marker_pos.copy()
    positions[0, 0] = 0
    first = run(model, replace(TRIAL, marker_pos=positions))[0]
    positions[0, 0] = -4
    assert np.array_equal(run(model, replace(TRIAL, marker_pos=positions))[0], first)


def test_padding_beyond_the_window_gives_no_nan() -> None:
    model = random_model()
    mask = np.zeros((1, 200), np.int64)
    mask[0, :6] = 1
    far = replace(
        TRIAL,
        input_ids=np.ones((1, 200), np.int64),
        attention_mask=mask,
        marker_pos=TRIAL.marker_pos[:1] % 5,
        marker_mask=np.ones((1, 3), np.bool_),
        qtype=TRIAL.qtype[:1],
    )
    short = replace(far, input_ids=far.input_ids[:, :6], attention_mask=mask[:, :6])
    np.testing.assert_allclose(run(model, far)[0], run(model, short)[0], **CLOSE)


def test_a_row_of_padding_is_finite_and_disturbs_nobody() -> None:
    model = random_model()
    batch = make_batch(TrialShape(3, 30, 3, dummy_row=True), FACTS)
    options, actions = run(model, batch)
    assert np.isfinite(options).all()
    assert np.isfinite(actions).all()
    rest = run(model, make_batch(TrialShape(3, 30, 3), FACTS))
    np.testing.assert_allclose(options[:2], rest[0][:2], **CLOSE)


def test_the_sliding_window_includes_its_ends() -> None:
    masks = sequential_masks(torch.ones(1, 9, dtype=torch.int64), reach=2)
    seen = masks[SLIDING][0, 0, 4].tolist()
    assert seen == [False, False, True, True, True, True, True, False, False]
    assert masks[FULL].all()


def test_real_tokens_never_see_padding() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    for seen in (full_mask(mask), *sequential_masks(mask, reach=1).values()):
        assert not seen[0, 0, :3, 3:].any()
        assert seen.any(dim=-1).all()


def test_options_of_the_parallel_layout_do_not_see_each_other() -> None:
    options = torch.tensor([[0, 1, 1, 2, 2, 0]])
    positions = torch.tensor([[0, 1, 2, 1, 2, 3]])
    masks = parallel_masks(torch.ones(1, 6, dtype=torch.int64), (positions, options), reach=1)
    assert masks[FULL][0, 0, 1].tolist() == [True, True, True, False, False, True]
    # Distance is that of position ids: the last token is next to the end of both options.
    assert masks[SLIDING][0, 0, 5].tolist() == [False, False, True, False, True, True]


def test_parallel_logits_follow_their_options() -> None:
    cases = [case for case in golden_cases("forward.json") if "option_ids" in case]
    by_order = {case["id"]: case["logits"][0] for case in cases}
    plain, permuted = by_order["parallel-None"], by_order["parallel-[2, 0, 1]"]
    np.testing.assert_allclose(permuted, [plain[index] for index in (2, 0, 1)], atol=1e-4)


def test_a_parallel_model_needs_its_two_inputs() -> None:
    model = random_model(parallel=True)
    with pytest.raises(ValueError, match="position_ids and option_ids"):
        run(model, TRIAL)


def test_other_encoders_work_in_the_sequential_layout() -> None:
    model = random_model(BERT, head_layers=1)
    assert not [name for name in model.state_dict() if "pooler" in name]
    together = run(model, TRIAL)
    for index, alone in single_rows(TRIAL):
        options, _ = run(model, alone)
        np.testing.assert_allclose(options[0], together[0][index, : options.shape[1]], **CLOSE)


def test_other_encoders_are_refused_in_the_parallel_layout() -> None:
    with pytest.raises(CheckpointFormatError, match="needs a ModernBERT encoder"):
        random_model(BERT, parallel=True)


def test_a_width_the_head_cannot_divide_is_refused() -> None:
    config = modernbert_config(hidden_size=200, num_attention_heads=4)
    with pytest.raises(CheckpointFormatError, match="not a multiple"):
        random_model(config)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (None, {}),
        (None, {"head_layers": 1}),
        (None, {"head_layers": 0}),
        (None, {"parallel": True}),
        (BERT, {"head_layers": 3, "actions": 5}),
    ],
    ids=["two layers", "one layer", "no layer", "parallel", "bert"],
)
def test_the_head_at_the_needed_places_answers_as_the_head_everywhere(
    config: dict[str, object] | None, options: dict[str, object]
) -> None:
    model = random_model(config, **options)
    facts = ModelFacts(vocabulary=50, parallel=model.parallel)
    for shape in (TrialShape(1, 9, 1), TrialShape(4, 31, 6), TrialShape(3, 30, 3, dummy_row=True)):
        given = tensors(make_batch(shape, facts))
        mask, qtype = given["attention_mask"], given["qtype"]
        places = needed_places(given["marker_pos"])
        with torch.inference_mode():
            hidden = model.encode(
                given["input_ids"], mask, given.get("position_ids"), given.get("option_ids")
            )
            everywhere = model.decide(hidden, mask, qtype)
            there = model.decide(hidden, mask, qtype, places)
        assert there.shape == (shape.rows, 1 + shape.options, hidden.shape[-1])
        np.testing.assert_allclose(there, gather(everywhere, places), rtol=0, atol=1e-5)


def test_needed_places_are_the_first_token_and_the_markers() -> None:
    places = needed_places(torch.tensor([[4, 7], [3, -2]]))
    assert places.tolist() == [[0, 4, 7], [0, 3, 0]]


@pytest.mark.parametrize("layers", [1, 3])
def test_the_last_head_layer_computes_at_the_needed_places_alone(layers: int) -> None:
    model = random_model(head_layers=layers)
    seen: list[int] = []
    for layer in model.head.layers:
        layer.linear1.register_forward_hook(lambda _, given, __: seen.append(given[0].shape[1]))
    run(model, TRIAL)
    tokens, options = TRIAL.input_ids.shape[1], TRIAL.marker_pos.shape[1]
    assert seen == [tokens] * (layers - 1) + [1 + options]


def test_a_row_of_padding_sees_its_first_token_in_other_encoders() -> None:
    model = random_model(BERT, head_layers=0)
    batch = make_batch(TrialShape(3, 30, 3, dummy_row=True), FACTS)
    one = replace(batch, attention_mask=batch.attention_mask.copy())
    one.attention_mask[-1, 0] = 1
    assert np.array_equal(run(model, batch)[1], run(model, one)[1])
