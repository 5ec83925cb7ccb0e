"""Which model a calibration belongs to: what is written into its file, and checked on reading."""

import hashlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from drut.checkpoint.bundle import Bundle
from drut.checkpoint.opened import Checkpoint
from drut.errors import CalibrationIdentityWarning, CheckpointFormatError, DigestMismatchError

FIRST_WITH_IDENTITY: Final = 2
"""Version of the file format from which a file says what it was made for."""

_TEMPERATURE_KEYS: Final = ("temperature", "temperature_by_options")
_DIGEST_KEYS: Final = ("graph_sha256", "tokenizer_sha256")
_HUB_PARTS: Final = 2  # owner and repository; what follows is a directory in it


@dataclass(frozen=True, slots=True)
class BundleIdentity:
    """The exported bundle whose logits were calibrated."""

    name: str
    version: int
    graph_sha256: str
    tokenizer_sha256: str

    def as_dict(self) -> dict[str, Any]:
        """The `bundle` object of a calibration file."""
        return {
            "name": self.name,
            "version": self.version,
            "graph_sha256": self.graph_sha256,
            "tokenizer_sha256": self.tokenizer_sha256,
        }

    def __str__(self) -> str:
        return f"bundle {self.name!r} version {self.version}"


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """What a calibration file says about its model."""

    model_id: str  # hub repository or directory of the checkpoint
    subfolder: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)  # settings without the temperatures
    bundle: BundleIdentity | None = None
    aliases: frozenset[str] = frozenset()  # other names of the same, accepted on reading

    def as_dict(self) -> dict[str, Any]:
        """The entries of a calibration file that tell its model."""
        entries: dict[str, Any] = {
            "model_id_or_path": self.model_id,
            "subfolder": self.subfolder,
            "config": dict(self.config),
        }
        return entries if self.bundle is None else {**entries, "bundle": self.bundle.as_dict()}


def identity_of(checkpoint: Checkpoint) -> ModelIdentity:
    """Tell what an opened checkpoint is: by its source, its settings, and its bundle's digests.

    The digests are those of the manifest; nothing large is read.
    """
    bundle = checkpoint.bundle
    source = str(checkpoint.model_id if bundle is None else bundle.manifest.get("source", ""))
    model_id, subfolder = _parted(source or checkpoint.model_id, hub=bundle is not None)
    raw = checkpoint.config.raw
    return ModelIdentity(
        model_id,
        subfolder,
        {key: value for key, value in raw.items() if key not in _TEMPERATURE_KEYS},
        None if bundle is None else _bundle_identity(bundle, checkpoint.tokenizer.digest),
        frozenset({checkpoint.model_id, *([bundle.name] if bundle else ())}),
    )


def graph_digest(bundle: Bundle) -> str | None:
    """SHA-256 of a bundle's graph by its manifest, None where the manifest does not say.

    A graph with weights in files beside it is told by all of them: the digest of the lines
    ``<sha256>  <name>``, sorted by name.
    """
    files = bundle.manifest.get("files", {})
    name = bundle.graph.name
    parts = {
        path: entry["sha256"]
        for path, entry in files.items()
        if (path == name or path.startswith(f"{name}."))
        and isinstance(entry, Mapping)
        and isinstance(entry.get("sha256"), str)
    }
    if name not in parts:
        return None
    if len(parts) == 1:
        return str(parts[name])
    lines = "".join(f"{digest}  {path}\n" for path, digest in sorted(parts.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def check_identity(
    payload: Mapping[str, Any],
    version: int,
    identity: ModelIdentity,
    *,
    where: str,
    any_graph: bool = False,
) -> None:
    """Compare what a calibration file says about its model with the model it is to be used for.

    Args:
        payload: content of the file.
        version: its checked version; before 2 a file says nothing.
        identity: the model it is to be used for.
        where: the file, for messages.
        any_graph: accept a file that is bound to another graph or tokenizer.

    Raises:
        DigestMismatchError: it is bound to another graph or tokenizer.
        CheckpointFormatError: its `bundle` is malformed.
    """
    bound = _bound(payload.get("bundle"), where)
    if bound is not None and identity.bundle is not None and not any_graph:
        _require_same_graph(bound, identity.bundle, where)
    if version < FIRST_WITH_IDENTITY:
        return
    differences = _differences(payload, identity, by_name=bound is None)
    if bound is not None and identity.bundle is None:
        differences.append(f"it is bound to {bound}, and no bundle is open to compare with")
    if differences:
        warnings.warn(
            f"{where} was made for another model: {'; '.join(differences)}; fit a new one with "
            "drut calibrate",
            CalibrationIdentityWarning,
            stacklevel=2,
        )


def _parted(source: str, *, hub: bool) -> tuple[str, str | None]:
    """Repository and directory of `owner/repository/directory`; a local path stays whole."""
    parts = source.split("/")
    if not hub or len(parts) <= _HUB_PARTS:
        return source, None
    return "/".join(parts[:_HUB_PARTS]), "/".join(parts[_HUB_PARTS:])


def _bundle_identity(bundle: Bundle, tokenizer_digest: str) -> BundleIdentity | None:
    digest = graph_digest(bundle)
    if digest is None:
        return None
    return BundleIdentity(bundle.name, bundle.version, digest, tokenizer_digest)


def _bound(value: object, where: str) -> BundleIdentity | None:
    if value is None:
        return None
    digests = [value.get(key) for key in _DIGEST_KEYS] if isinstance(value, Mapping) else []
    texts = [digest for digest in digests if isinstance(digest, str)]
    if not isinstance(value, Mapping) or len(texts) != len(_DIGEST_KEYS):
        raise CheckpointFormatError(
            f"{where}: bundle must be an object with {' and '.join(_DIGEST_KEYS)}, got {value!r}"
        )
    version = value.get("version")
    known = version if isinstance(version, int) else 0
    return BundleIdentity(str(value.get("name", "?")), known, texts[0].lower(), texts[1].lower())


def _require_same_graph(bound: BundleIdentity, own: BundleIdentity, where: str) -> None:
    for name, asked, found in (
        ("graph", bound.graph_sha256, own.graph_sha256),
        ("tokenizer", bound.tokenizer_sha256, own.tokenizer_sha256),
    ):
        if asked != found:
            raise DigestMismatchError(
                f"{where} was fitted for {bound}, whose {name} has the SHA-256 {asked}; {own} has "
                f"{found}. Fit a new file with drut calibrate, or accept this one with "
                "calibration_any_graph=True (--calibration-any-graph)"
            )


def _differences(
    payload: Mapping[str, Any], identity: ModelIdentity, *, by_name: bool
) -> list[str]:
    found: list[str] = []
    named, subfolder = payload.get("model_id_or_path"), payload.get("subfolder")
    same = (named, subfolder) == (identity.model_id, identity.subfolder)
    # A digest says more than a name, which is another one on every machine.
    if by_name and not same and not (named in identity.aliases and subfolder is None):
        found.append(
            f"it names {named!r} (subfolder {subfolder!r}), this is {identity.model_id!r} "
            f"(subfolder {identity.subfolder!r})"
        )
    config = payload.get("config")
    theirs = config if isinstance(config, Mapping) else {}
    keys = sorted(
        str(key)
        for key in {*theirs, *identity.config} - {*_TEMPERATURE_KEYS}
        if theirs.get(key) != identity.config.get(key)
    )
    if keys:
        found.append(f"its settings differ in {', '.join(keys)}")
    return found
