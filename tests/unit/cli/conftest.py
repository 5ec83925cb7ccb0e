from pathlib import Path

import pytest

from unit.cli.roomy import write_roomy_bundle


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model repository with one bundle, `starter`. Not to be changed."""
    repository = tmp_path_factory.mktemp("bundles")
    write_roomy_bundle(repository)
    return repository


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and user directory, and no settings of drut."""
    for name in ("MODEL_REPOSITORY", "DEVICE", "THREADS", "SHA256_DIGESTS"):
        monkeypatch.delenv(f"DRUT_{name}", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("drut.settings.shipped_repository", lambda: tmp_path / "shipped")
    monkeypatch.chdir(tmp_path)
    return tmp_path
