"""Reading a database in WordNet's file format, and the questions made from it."""

import random

import pytest
from starter.wordnet import WordNetMissingError, load_wordnet
from starter.wordnet_tasks import KIND_QUESTIONS, WORD_QUESTIONS, wordnet_example

# Eleven words, a marker after a word, a pointer of each sort, and a gloss with all its parts.
WIDE = (
    "00000002 05 n 0b "
    + " ".join(f"word_{letter} 0" for letter in "abcdefghij")
    + " last(p) 0 003 @ 00000001 n 0000 @i 00000009 n 0000 ~ 00000003 n 0000 "
    '| (of things) first part; second part; "an example of some length"; "too short"  \n'
)


@pytest.fixture
def drawn_questions(net):
    rng = random.Random(6)
    return [wordnet_example(net, rng) for _ in range(1500)]


def test_a_record_is_read(tmp_path, wordnet_directory):
    for path in wordnet_directory.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / "data.noun").open("a", encoding="latin-1") as data:
        data.write(WIDE.replace("00000002", "90000002", 1))
    synset = load_wordnet(tmp_path).synsets["n90000002"]
    assert len(synset.words) == 11
    assert (synset.words[0], synset.words[-1]) == ("word a", "last")
    assert synset.definition == "first part; second part"
    assert synset.examples == ("an example of some length",)
    assert synset.parents == ("n00000001", "n00000009")
    assert (synset.part, synset.subject) == ("n", "05")


def test_broader_meanings_are_found_nearest_first(net):
    (apple,) = (synset for synset in net.synsets.values() if synset.words == ("apple",))
    assert [net.synsets[key].words[0] for key in apple.kinds] == ["fruit", "root"]


def test_only_meanings_seen_in_tagged_text_are_asked(tmp_path, wordnet_directory):
    for path in wordnet_directory.iterdir():
        text = path.read_text(encoding="latin-1")
        if path.name == "index.noun":
            text = text.replace("pear n 1 1 @ 1 1", "pear n 1 1 @ 1 0")
        (tmp_path / path.name).write_text(text, encoding="latin-1")
    net = load_wordnet(tmp_path)
    assert "apple" in net.by_word
    assert "pear" not in net.by_word


def test_a_missing_database_is_named(tmp_path):
    with pytest.raises(WordNetMissingError, match="wordnet-base"):
        load_wordnet(tmp_path)


def test_all_sorts_of_questions_are_drawn(drawn_questions):
    asked = " ".join({question.instructions for question in drawn_questions})
    for part in ("definition", "kind of", "mean here", "Domain", "Does it define"):
        assert part in asked


def meant(net, question):
    """The only meaning of the word that a made-up definition or example is about."""
    found = [word for word in question.core.lower().replace(":", "").split() if word in net.by_word]
    return net.synsets[net.by_word[found[0]][0]] if found else None


def kinds_of(net, synset):
    return {net.synsets[key].words[0] for key in synset.kinds}


def test_a_definition_belongs_to_the_right_word(net, drawn_questions):
    asked = [q for q in drawn_questions if q.instructions in WORD_QUESTIONS and meant(net, q)]
    assert len(asked) > 100
    for question in asked:
        assert question.anchors[question.answer] == meant(net, question).words[0]


def test_only_the_right_kind_is_offered(net, drawn_questions):
    asked = [q for q in drawn_questions if q.instructions in KIND_QUESTIONS and meant(net, q)]
    assert len(asked) > 100
    for question in asked:
        kinds = kinds_of(net, meant(net, question))
        offered = [place for place, anchor in enumerate(question.anchors) if anchor in kinds]
        assert offered == [question.answer]


def test_is_a_questions_have_their_answer(net, drawn_questions):
    answers = []
    for question in drawn_questions:
        if question.instructions.startswith("Is it a kind of "):
            kind = question.instructions.removeprefix("Is it a kind of ").rstrip("?")
            assert question.answer == int(kind in kinds_of(net, meant(net, question)))
            answers.append(question.answer)
    assert min(answers.count(0), answers.count(1)) > 3


def test_options_differ(drawn_questions):
    assert all(len(set(question.options)) == len(question.options) for question in drawn_questions)
    assert min(len(question.options) for question in drawn_questions) >= 2
