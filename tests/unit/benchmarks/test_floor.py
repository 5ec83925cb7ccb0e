"""Which products of a pass count for the floor, and which part of drut a function is."""

from benchmarks.floor import shapes_of
from benchmarks.profiling import part_of, shares


def event(made: list[int], *given: list[int], kind: str = "MatMul") -> dict:
    told = {
        "op_name": kind,
        "input_type_shape": [{"float": each} for each in given],
        "output_type_shape": [{"float": made}],
    }
    return {"name": "n_kernel_time", "args": told}


def test_products_with_weights_count_with_their_real_rows() -> None:
    wide = event([1, 128, 96], [1, 128, 64], [64, 96])
    assert shapes_of([wide, wide, event([4, 1], [4, 64], [64, 1])]) == {
        (128, 64, 96): 2,
        (4, 64, 1): 1,
    }


def test_products_of_activations_and_other_operators_do_not_count() -> None:
    attention = event([1, 4, 8, 8], [1, 4, 8, 16], [1, 4, 16, 8])
    other = event([2, 3], [2, 3], [2, 3], kind="Add")
    assert not shapes_of([attention, other, {"name": "model_run"}])


def test_packed_weights_are_not_in_the_profile_and_count_all_the_same() -> None:
    assert shapes_of([event([5, 96], [5, 64])]) == {(5, 64, 96): 1}
    assert shapes_of([event([5, 96], [5, 64], [96], kind="Gemm")]) == {(5, 64, 96): 1}


def test_shares_add_up_and_follow_the_module() -> None:
    stats = {
        ("src/drut/hooks/chain.py", 1, "call"): (1, 1, 1.0, 1.0, {}),
        ("src/drut/runtimes/ort.py", 1, "forward"): (1, 1, 3.0, 3.0, {}),
    }
    found = shares(stats)
    assert found["hooks"] == 0.25
    assert found["forward pass"] == 0.75
    assert part_of("src/drut/batching.py", "collate") == "plan and collate"
    assert part_of("~", "<built-in method len>") == "rest of Python"
