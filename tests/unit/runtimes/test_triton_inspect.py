import pytest

from drut.errors import InvalidRequestError, RuntimeUnavailableError
from drut.runtimes.triton_inspect import ServedModel, inspect_server
from drut.runtimes.triton_options import TritonOptions
from fake_v2_server import FakeV2Server
from triton_helpers import PROTOCOLS

both = pytest.mark.parametrize("protocol", PROTOCOLS)


@both
def test_a_server_tells_its_version_and_its_models(fake: FakeV2Server, protocol: str) -> None:
    fake.versions = ["1", "2"]
    report = inspect_server(TritonOptions(fake.url(protocol)))
    assert (report.url, report.version) == (fake.url(protocol), "0.0")
    assert report.models == (
        ServedModel("tiny", "1", "READY"),
        ServedModel("tiny", "2", "READY"),
    )


@both
def test_nobody_there_is_an_error(protocol: str) -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"127\.0\.0\.1:9"):
        inspect_server(TritonOptions(f"{protocol}://127.0.0.1:9"))


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        inspect_server(TritonOptions("ftp://host"))
