"""Where the conformance tests keep the exports they share."""

import pytest

import lifecycle_helpers
from exports import shared_directory


@pytest.fixture(scope="session", autouse=True)
def _exports_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> None:
    lifecycle_helpers.EXPORTS.append(shared_directory(tmp_path_factory))
