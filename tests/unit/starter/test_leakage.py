"""No held-out item may be in the bank, and no held-out label set may be trained."""

import pytest
from starter import evalsets
from starter.bank import load_schemas
from starter.leakage import HeldOut, leaked

HELD_OUT = [evalsets.UNSEEN, evalsets.DEVELOPMENT]


def test_a_nearly_equal_text_is_found():
    held_out = HeldOut(["My card was charged twice for the same order."])
    assert held_out.has("my card was charged twice for the same order")
    assert held_out.has("Hello, my card was charged twice for the same order")
    assert not held_out.has("My card was declined for the second time")


def test_the_bank_has_no_held_out_text(schemas):
    items = evalsets.written_cases()
    items += [item for path in HELD_OUT for item in evalsets.schema_items(path)]
    assert leaked(schemas, HeldOut(item.state for item in items)) == []


@pytest.mark.parametrize("path", HELD_OUT, ids=lambda path: path.name)
def test_no_held_out_label_set_is_trained(schemas, path):
    def names(schema):
        return {label.names[0].lower() for label in schema.labels}

    # Scales such as low, medium, high are common property; sets of categories are not.
    trained = [names(schema) for schema in schemas if schema.kind == "choice"]
    for schema in load_schemas([path]):
        if schema.kind == "choice":
            asked = names(schema)
            assert not any(len(asked & known) > len(asked) / 2 for known in trained), schema.domain


def test_development_and_unseen_schemas_are_different():
    unseen, development = (
        {text for schema in load_schemas([path]) for text in schema.texts()} for path in HELD_OUT
    )
    assert not unseen & development
