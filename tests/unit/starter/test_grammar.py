import random

from starter.grammar import SLOTS, expand, unknown_slots


def readings(text, count=60):
    return {expand(text, random.Random(seed)) for seed in range(count)}


def test_every_alternative_is_drawn():
    assert readings("a (red|blue) car") == {"a red car", "a blue car"}


def test_alternatives_may_nest_and_be_empty():
    assert readings("(a|(b|c) d|)x") == {"ax", "b dx", "c dx", "x"}


def test_plain_parentheses_stay():
    assert expand("call (maybe) {n}", random.Random(0))[:-1] == "call (maybe) "


def test_slots_are_filled_from_their_list():
    assert readings("{city}", 400) <= set(SLOTS["city"])
    assert expand("{n}", random.Random(0)).isdigit()


def test_escaped_line_break_becomes_one():
    assert expand(r"a\nb", random.Random(0)) == "a\nb"


def test_the_same_seed_gives_the_same_reading():
    text = "(a|b|c) {name} {money} {time}"
    assert expand(text, random.Random(5)) == expand(text, random.Random(5))


def test_unknown_slots_are_named():
    assert unknown_slots("{name} {planet}") == ["planet"]
