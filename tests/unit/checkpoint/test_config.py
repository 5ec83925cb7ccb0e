import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.checkpoint.config import CONFIG_NAME, parse_config, read_config, read_json_object
from drut.errors import CheckpointFormatError, CheckpointNotFoundError, DrutError
from property_settings import examples
from tiny_checkpoint import TINY, TINY_PARALLEL

LEAST = {"encoder": "org/encoder", "head_layers": 2}


def parse(**changes: Any) -> Any:
    return parse_config({**LEAST, **changes}, where="the file")


def test_the_golden_checkpoint_is_read_as_written():
    config = read_config(TINY)
    assert config.encoder == "offline/tiny-modernbert"
    assert (config.head_layers, config.actions) == (2, 2)
    assert (config.max_len, config.head_max_len) == (256, 96)
    assert config.temperature == (1.3, 0.9, 2.0)
    assert config.temperature_by_options["choice:11+"] == 0.1006  # clamped later, not here
    assert config.amp_dtype == "bf16"
    assert config.option_layout == "sequential"
    assert config.parallel is False
    assert read_config(TINY_PARALLEL).parallel is True


def test_the_formats_defaults_fill_the_gaps():
    config = parse()
    assert (config.max_len, config.head_max_len) == (512, 192)
    assert config.temperature == (1.0, 1.0, 1.0)
    assert config.temperature_by_options == {}
    assert config.option_layout == "sequential"
    assert config.amp_dtype == "fp16"
    assert config.actions == 1


def test_the_file_as_read_is_kept():
    assert parse(training={"epochs": 3}).raw["training"] == {"epochs": 3}


@pytest.mark.parametrize("missing", [["encoder"], ["head_layers"], ["encoder", "head_layers"]])
def test_missing_settings_are_all_named(missing: list[str]):
    with pytest.raises(CheckpointFormatError, match=", ".join(missing)):
        parse_config({key: value for key, value in LEAST.items() if key not in missing})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("encoder", None),
        ("encoder", 5),
        ("head_layers", -1),
        ("head_layers", 2.0),
        ("head_layers", True),
        ("head_layers", None),
        ("max_len", None),
        ("max_len", "256"),
        ("max_len", 0),
        ("max_len", 1.5),
        ("head_max_len", 0),
        ("head_max_len", False),
        ("act_costs", None),
        ("act_costs", 2),
        ("act_costs", "ab"),
        ("temperature", None),
        ("temperature", 1.0),
        ("temperature", [1.0, 1.0]),
        ("temperature", "abc"),
        ("temperature", {"a": 1, "b": 2, "c": 3}),
        ("temperature_by_options", None),
        ("temperature_by_options", []),
        ("option_layout", None),
        ("option_layout", "Parallel"),
        ("option_layout", ["parallel"]),
        ("amp_dtype", None),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_when_the_file_is_read(key: str, value: Any):
    with pytest.raises(CheckpointFormatError, match=f"the file.*{key}"):
        parse(**{key: value})


@pytest.mark.parametrize(
    ("costs", "actions"), [({}, 1), ({"act": 0.0}, 2), ({"a": 1, "b": 2}, 3), ([1, 2], 3)]
)
def test_only_the_number_of_act_costs_matters(costs: Any, actions: int):
    assert parse(act_costs=costs).actions == actions


def test_no_head_layers_are_allowed():
    assert parse(head_layers=0).head_layers == 0


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["parallel", "sequential", "fp16", 10**400]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@examples(40)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: _values
            for key in (
                "encoder",
                "head_layers",
                "act_costs",
                "max_len",
                "head_max_len",
                "temperature",
                "temperature_by_options",
                "option_layout",
                "amp_dtype",
                "unknown",
            )
        },
    )
)
def test_any_json_object_is_parsed_or_refused_by_name(raw: dict[str, Any]):
    try:
        config = parse_config(raw)
    except CheckpointFormatError:
        return
    assert config.max_len >= 1
    assert config.head_max_len >= 1
    assert config.actions >= 1


def test_a_directory_without_settings_is_no_checkpoint(tmp_path: Path):
    with pytest.raises(CheckpointNotFoundError, match="subfolder"):
        read_config(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'\xef\xbb\xbf{"encoder": "x"}',
        b"[1]",
        b'"text"',
        b"null",
        b'{"a": ' + b"1" * 5000 + b"}",
        b"[" * 100_000,
    ],
    ids=["empty", "cut", "binary", "bom", "list", "text", "null", "digits", "nested"],
)
def test_a_file_that_is_no_json_object_is_a_format_error(tmp_path: Path, content: bytes):
    path = tmp_path / CONFIG_NAME
    path.write_bytes(content)
    with pytest.raises(CheckpointFormatError, match=CONFIG_NAME) as caught:
        read_json_object(path)
    assert isinstance(caught.value, DrutError)


def test_a_json_object_is_read_as_utf8(tmp_path: Path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"é": 1}, ensure_ascii=False), encoding="utf-8")
    assert read_json_object(path) == {"é": 1}
