"""The public surface is exactly what `__all__` says, and drop-in where upstream's is."""

import inspect

import pytest

import drut
from drut import errors


def test_all_names_exist_and_nothing_else_is_offered() -> None:
    assert sorted(drut.__all__) == dir(drut)
    assert all(getattr(drut, name) is not None for name in drut.__all__)


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        drut.Agnet  # noqa: B018


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        (
            "predict_batch",
            "states questions batch_size lang hooks on_predict_start on_predict_end hooks_raise "
            "hooks_timeout max_len head_max_len sort_by_length min_confidence",
        ),
        (
            "system_one",
            "state questions lang hooks on_predict_start on_predict_end hooks_raise hooks_timeout "
            "max_len head_max_len min_confidence",
        ),
        (
            "predict_long",
            "state questions window stride aggregate batch_size lang hooks on_predict_start "
            "on_predict_end hooks_raise hooks_timeout",
        ),
    ],
)
def test_methods_take_upstreams_arguments(method: str, arguments: str) -> None:
    parameters = inspect.signature(getattr(drut.Agent, method)).parameters
    assert set(arguments.split()) <= set(parameters)


def test_predict_is_system_one() -> None:
    assert drut.Agent.predict is drut.Agent.system_one


def test_every_error_is_in_the_tree_and_documented() -> None:
    classes = [
        value
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.DrutError)
    ]
    assert len(classes) > 15
    assert errors.__doc__ is not None
    for error in classes:
        assert error.__name__ in errors.__doc__
        assert error.__doc__
