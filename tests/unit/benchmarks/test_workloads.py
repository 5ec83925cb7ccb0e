"""Workloads are the same in every run."""

from benchmarks import workloads

from drut.questions import parse_questions


def test_states_are_the_same_in_every_run_and_differ_by_seed() -> None:
    assert workloads.mixed_states(64) == workloads.mixed_states(64)
    assert workloads.mixed_states(64) != workloads.mixed_states(64, seed=4)


def test_a_smaller_set_is_the_start_of_a_larger_one() -> None:
    assert workloads.mixed_states(64)[:8] == workloads.mixed_states(8)


def test_lengths_are_mixed() -> None:
    words = [len(state.split()) for state in workloads.mixed_states(64)]
    assert min(words) < 15
    assert max(words) > 100


def test_no_two_states_of_a_batch_are_equal() -> None:
    """Equal rows are computed once by drut and by nobody else: that would flatter it."""
    for states in (workloads.mixed_states(64), workloads.real_states(300)):
        assert len(set(states)) == len(states)


def test_questions_and_options_are_as_many_as_asked_and_all_different() -> None:
    for count in (1, 4, 16, 32):
        asked = workloads.questions(count)
        assert len({question["instructions"] for question in asked.values()}) == count
        assert len(list(parse_questions(asked))) == count
    options = workloads.many_options(200)["label"]["criteria"]
    assert len(set(options)) == 200


def test_every_evaluation_case_is_a_valid_question() -> None:
    cases = workloads.evaluation()
    assert len(cases) > 100
    for _, asked in cases:
        parse_questions(asked)
