from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drut.errors import InvalidRequestError, InvalidTypeError
from drut.runtimes.devices import (
    CPU,
    CUDA,
    TENSORRT,
    device_of,
    limited,
    parse_device,
    providers_for,
)
from property_settings import examples

EVERYTHING = [TENSORRT, CUDA, CPU]


def names(device: str, available: list[str] = EVERYTHING) -> list[str]:
    return [name for name, _ in providers_for(parse_device(device), available, {})]


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (None, "auto"),
        ("auto", "auto"),
        (" CPU ", "cpu"),
        ("cuda", "cuda:0"),
        ("CUDA:3", "cuda:3"),
        ("tensorrt", "tensorrt:0"),
        ("tensorrt:1", "tensorrt:1"),
    ],
)
def test_a_device_is_read_in_any_case(given: str | None, name: str):
    assert parse_device(given).name == name


@pytest.mark.parametrize(
    "given",
    ["", "gpu", "cuda:", "cuda:x", "cuda:-1", "cpu:0", "auto:1", "cuda 1", "cuda:1:2", "mps"],
)
def test_an_unknown_device_is_refused_with_the_known_ones(given: str):
    with pytest.raises(InvalidRequestError, match="auto, cpu, cuda, cuda:N"):
        parse_device(given)


@pytest.mark.parametrize("given", [0, True, b"cuda", ["cuda"]])
def test_a_device_is_text(given: Any):
    with pytest.raises(InvalidTypeError, match=type(given).__name__):
        parse_device(given)


@examples(40)
@given(st.text(max_size=12))
def test_any_text_is_a_device_or_refused(text: str):
    try:
        device = parse_device(text)
    except InvalidRequestError:
        return
    assert parse_device(device.name) == device


@pytest.mark.parametrize(
    ("device", "asked"),
    [
        ("cpu", [CPU]),
        ("auto", [CUDA, CPU]),
        ("cuda:1", [CUDA, CPU]),
        ("tensorrt", [TENSORRT, CUDA, CPU]),
    ],
)
def test_a_device_implies_providers(device: str, asked: list[str]):
    assert names(device) == asked


def test_tensorrt_is_never_asked_for_unless_named():
    assert TENSORRT not in names("auto") + names("cuda") + names("cpu")


def test_auto_takes_what_there_is_and_a_name_insists():
    assert names("auto", [CPU]) == [CPU]
    assert names("cuda", [CPU]) == [CUDA, CPU]
    assert names("tensorrt", [CPU]) == [TENSORRT, CUDA, CPU]


def test_the_index_reaches_every_provider_of_the_gpu():
    asked = dict(providers_for(parse_device("tensorrt:2"), EVERYTHING, {}))
    assert asked[TENSORRT]["device_id"] == asked[CUDA]["device_id"] == 2
    assert asked[CPU] == {}


def test_the_callers_options_win():
    given = {CUDA: {"cudnn_conv_algo_search": "DEFAULT", "gpu_mem_limit": 1}, TENSORRT: {"x": 1}}
    asked = dict(providers_for(parse_device("cuda"), EVERYTHING, given))
    assert asked[CUDA] == {
        "device_id": 0,
        "cudnn_conv_algo_search": "DEFAULT",
        "gpu_mem_limit": 1,
    }
    assert TENSORRT not in asked
    assert given == {
        CUDA: {"cudnn_conv_algo_search": "DEFAULT", "gpu_mem_limit": 1},
        TENSORRT: {"x": 1},
    }


@pytest.mark.parametrize(
    ("provider", "name"),
    [(CPU, "cpu"), (CUDA, "cuda:1"), (TENSORRT, "tensorrt:1"), ("OtherProvider", "OtherProvider")],
)
def test_a_provider_runs_on_a_device(provider: str, name: str):
    assert device_of(provider, 1) == name


def test_a_bound_for_memory_is_cudas_and_the_callers_options_win():
    given = [(TENSORRT, {}), (CUDA, {"device_id": 1}), (CPU, {})]
    made = dict(limited(given, 512))
    assert made[CUDA]["gpu_mem_limit"] == 512 * 1024 * 1024
    assert made[CUDA]["arena_extend_strategy"] == "kSameAsRequested"
    assert made[CUDA]["device_id"] == 1
    assert made[TENSORRT] == made[CPU] == {}
    own = dict(limited([(CUDA, {"gpu_mem_limit": 7})], 512))
    assert own[CUDA]["gpu_mem_limit"] == 7


def test_a_bound_for_memory_without_cuda_is_refused():
    with pytest.raises(InvalidRequestError, match="max_batch_tokens"):
        limited([(CPU, {})], 512)
