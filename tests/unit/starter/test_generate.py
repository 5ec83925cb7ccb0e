from collections import Counter

import pytest
from starter.bank import Label, Schema
from starter.generate import Generator
from starter.phrases import OTHER_OPTIONS
from starter.styles import kebab, screaming, snake, title


def by_kind(examples, kind):
    return [example for example in examples if example.kind == kind]


@pytest.fixture(scope="module")
def colours():
    """A schema whose texts name their label, so that the right option can be told."""
    labels = [
        Label((name,), "", [f"the {name} one", f"a {name} thing"])
        for name in ("red", "blue", "green", "brown", "white")
    ]
    return Schema("choice", "colours", ["Which colour is it?"], labels)


def test_the_answer_is_the_label_of_the_text(colours):
    generator = Generator([colours], seed=1)
    for _ in range(500):
        example = generator.choice()
        named = [label.names[0] for label in colours.labels if label.names[0] in example.core]
        right = example.anchors[example.answer]
        assert [right] == named or right in OTHER_OPTIONS


def test_another_option_is_right_only_if_the_label_is_missing(colours):
    generator = Generator([colours], seed=2)
    for _ in range(500):
        example = generator.choice()
        if example.anchors[example.answer] in OTHER_OPTIONS:
            assert not any(anchor in example.core for anchor in example.anchors)


def test_options_of_a_question_differ(drawn):
    assert all(len(set(example.options)) == len(example.options) for example in drawn)
    assert all(len(example.options) >= 2 for example in drawn if not example.soft)


def test_the_right_option_stands_in_every_place_alike(drawn):
    places = Counter(e.answer for e in by_kind(drawn, "choice") if len(e.options) == 4)
    assert min(places[place] for place in range(4)) > 0.6 * sum(places.values()) / 4


def test_yes_and_no_are_balanced(drawn):
    answers = [example.answer for example in by_kind(drawn, "noul")]
    assert 0.4 < sum(answers) / len(answers) < 0.6


def test_some_yes_no_questions_show_true_first(drawn):
    swapped = [bool(example.order) for example in by_kind(drawn, "noul")]
    assert 0.08 < sum(swapped) / len(swapped) < 0.25


def test_options_are_worded_as_in_the_checkpoint_format(drawn):
    for example in by_kind(drawn, "score"):
        assert all(text.startswith(f"level {i}: ") for i, text in enumerate(example.options))
    noul = by_kind(drawn, "noul")
    assert Counter(example.options for example in noul).most_common(1)[0][0] == (
        "false: no, the statement does not hold",
        "true: yes, the statement holds",
    )


def test_levels_keep_their_order(schemas):
    """The level of the text's label is the answer, whatever was left out or turned round."""
    scores = [schema for schema in schemas if schema.kind == "score"]
    generator = Generator(scores, seed=4)
    labels = {}
    for schema in scores:
        for place, label in enumerate(schema.labels):
            labels |= {name.lower(): (id(schema), place) for name in label.names}
    seen = 0
    for _ in range(300):
        example = generator.score()
        found = [labels.get(anchor) for anchor in example.anchors]
        if None in found or len({schema for schema, _ in found}) > 1:
            continue
        places = [place for _, place in found]
        assert places == sorted(places) or places == sorted(places, reverse=True)
        seen += 1
    assert seen > 100


def test_the_same_seed_draws_the_same_examples(schemas):
    one, other = (Generator(schemas, seed=9) for _ in range(2))
    assert [one.sample() for _ in range(50)] == [other.sample() for _ in range(50)]


def test_option_styles():
    assert snake("Late delivery (EU)") == "late_delivery_eu"
    assert screaming("late delivery") == "LATE_DELIVERY"
    assert kebab("Late delivery") == "late-delivery"
    assert title("late delivery") == "Late Delivery"
