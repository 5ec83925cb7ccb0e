"""How far a graph may be from the checkpoint it was made from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a graph may be from the torch model, absolute. Probabilities at temperature 1."""

    logits: float
    probabilities: float
    equal_choices: float  # least share of rows with the same best option, ties aside
    batch: float  # logits of a row alone against the same row in a padded batch
