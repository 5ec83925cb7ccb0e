"""What the losses reward."""

import pytest
import torch
from starter import objective
from starter.examples import Example
from starter.model_data import Batch


def batch_of(kind, answers, options, *, soft=False):
    """A batch without tokens: the losses look at options and answers only."""
    rows = len(answers)
    example = Example(kind, "?", ("a",) * options, 0, "s", ("a",) * options, "s")
    kinds = {"choice": 0, "score": 1, "noul": 2}
    nothing = torch.zeros(rows, 1, dtype=torch.long)
    return Batch(
        ids=nothing,
        attention=nothing,
        markers=torch.zeros(rows, options, dtype=torch.long),
        marker_mask=torch.ones(rows, options, dtype=torch.bool),
        state_mask=nothing.bool(),
        qtype=torch.full((rows,), kinds[kind]),
        answer=torch.tensor(answers),
        soft=torch.full((rows,), soft),
        examples=(example,) * rows,
    )


def test_question_types_are_numbered_as_in_the_format():
    from drut.tensors import QTYPES

    assert QTYPES == {"choice": 0, "score": 1, "noul": 2}


@pytest.mark.parametrize("kind", ["choice", "score", "noul"])
def test_the_right_answer_costs_least(kind):
    logits = 5 * torch.eye(3)
    losses = objective.answer_loss(logits, batch_of(kind, [1, 1, 1], 3))
    assert losses.argmin() == 1


def test_a_score_pays_for_distance_and_a_choice_does_not():
    logits = 5 * torch.eye(4)[1:]
    near, middle, far = objective.answer_loss(logits, batch_of("score", [0, 0, 0], 4)).tolist()
    assert near + 0.1 < middle < far - 0.1
    one, two, three = objective.answer_loss(logits, batch_of("choice", [0, 0, 0], 4)).tolist()
    assert one == pytest.approx(two)
    assert two == pytest.approx(three)


def test_missing_options_cost_nothing():
    batch = batch_of("choice", [0], 3)
    batch.marker_mask[0, 2] = False
    logits = torch.tensor([[1.0, 0.5, -1e4]])
    two = objective.answer_loss(logits[:, :2], batch_of("choice", [0], 2))
    assert objective.answer_loss(logits, batch).tolist() == pytest.approx(two.tolist(), abs=1e-4)


def test_similarities_pull_the_answer_their_way():
    logits = torch.zeros(1, 3, requires_grad=True)
    similarities = torch.tensor([[0.1, 0.9, 0.2]])
    batch = batch_of("choice", [0], 3, soft=True)
    objective.similarity_loss(logits, similarities, batch).sum().backward()
    assert logits.grad[0].argmin() == 1


def test_agreement_costs_nothing():
    similarities = torch.tensor([[0.1, 0.9, 0.2]])
    batch = batch_of("choice", [0], 3, soft=True)
    # The target mixes in the own logits, so logits at the similarities' scale agree with it.
    agreeing = objective.SIMILARITY_SCALE * similarities
    assert objective.similarity_loss(agreeing, similarities, batch).item() == pytest.approx(0.0)


def test_the_mean_of_no_rows_is_zero():
    assert objective.masked_mean(torch.ones(3), torch.zeros(3, dtype=torch.bool)) == 0
