"""The error classes are what the module's tree says they are."""

import builtins
import inspect
import pickle
import re

import pytest

from drut import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if inspect.isclass(value)
    and value.__module__ == errors.__name__
    and not issubclass(value, Warning)
}


def _tree() -> dict[str, tuple[str, str | None]]:
    """Name of every class in the docstring, with its parent and the built-in it derives from."""
    path: list[str] = []
    found: dict[str, tuple[str, str | None]] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"([│├└─ ]*)(\w+)(?: \((\w+)\))?", line)
        if match is None or match[2] not in CLASSES:
            continue
        depth = len(match[1]) // 4
        del path[depth:]
        found[match[2]] = (path[-1] if path else "Exception", match[3])
        path.append(match[2])
    return found


TREE = _tree()


def test_the_tree_lists_every_class():
    assert TREE.keys() == CLASSES.keys()


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_has_the_bases_of_the_tree(name: str):
    parent, builtin = TREE[name]
    bases = {base.__name__ for base in CLASSES[name].__bases__}
    assert bases == {parent, *([builtin] if builtin else [])}


@pytest.mark.parametrize("name", CLASSES)
def test_every_class_can_be_caught_as_drut_error(name: str):
    assert issubclass(CLASSES[name], errors.DrutError)
    assert CLASSES[name].__doc__


@pytest.mark.parametrize("name", [name for name, (_, builtin) in TREE.items() if builtin])
def test_the_builtin_in_brackets_is_one(name: str):
    builtin = TREE[name][1]
    assert builtin is not None
    assert issubclass(getattr(builtins, builtin), Exception)


@pytest.mark.parametrize("name", CLASSES)
def test_an_error_keeps_its_message_across_processes(name: str):
    error = CLASSES[name]("what was asked")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == "what was asked"


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("InvalidRequestError", ValueError),
        ("InvalidTypeError", TypeError),
        ("InvalidTypeError", ValueError),
        ("InvalidTextError", TypeError),
        ("OptionsTruncatedError", ValueError),
        ("CheckpointNotFoundError", FileNotFoundError),
        ("CheckpointFormatError", ValueError),
        ("DownloadError", OSError),
        ("HookTimeoutError", TimeoutError),
        ("MissingDependencyError", ImportError),
    ],
)
def test_code_written_for_the_builtin_still_catches_it(name: str, builtin: type[Exception]):
    with pytest.raises(builtin):
        raise CLASSES[name]("message")
