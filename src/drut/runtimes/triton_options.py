"""Which Triton server and model to ask, and how: addresses, headers, TLS."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from drut.errors import InvalidRequestError, InvalidTypeError

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Headers of every request, or a function that is asked before each one (tokens that change)."""

DEFAULT_TIMEOUT: Final = 30.0
"""Seconds one forward pass may take where no `drut.deadline` is in force."""

SCHEMES: Final = ("http", "https", "grpc", "grpcs")
_PORTS: Final = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 443}
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_OURS: Final = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding"}
    | {"content-type", "inference-header-content-length"}
)


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """How an `https` or `grpcs` server is trusted, and what this client shows it. PEM files."""

    ca: str | Path | None = None  # None: the system's, of gRPC: those it ships with
    certificate: str | Path | None = None  # this client's chain
    key: str | Path | None = None
    insecure: bool = False  # trust any server; https only


@dataclass(frozen=True, slots=True)
class TritonOptions:
    """Everything `TritonRuntime` can be told."""

    url: str
    model: str | None = None  # its name on the server; None: the bundle's
    version: int | Literal["latest"] | None = None  # latest: the server's; None: the bundle's
    headers: Headers | None = None
    tls: TlsOptions | None = None
    timeout: float = DEFAULT_TIMEOUT
    load: bool = False  # load a model that is not ready, and unload it on closing

    def __post_init__(self) -> None:
        _check_version(self.version)
        _check_timeout(self.timeout)
        if self.headers is not None and not callable(self.headers):
            checked_headers(self.headers)


@dataclass(frozen=True, slots=True)
class Address:
    """A server's URL, taken apart."""

    scheme: str
    host: str
    port: int
    path: str = ""  # in front of `/v2`, without a slash at the end; http and https only

    @property
    def secure(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("https", "grpcs")

    @property
    def grpc(self) -> bool:
        """Whether gRPC is spoken there."""
        return self.scheme in ("grpc", "grpcs")

    @property
    def authority(self) -> str:
        """Host and port."""
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}"


def parse_url(url: object) -> Address:
    """Take a URL apart.

    Raises:
        InvalidTypeError: it is not a string.
        InvalidRequestError: another scheme, no host, or more than an address.
    """
    if not isinstance(url, str):
        raise InvalidTypeError(
            f"url must be a string such as 'grpc://127.0.0.1:8001', got {type(url).__name__}"
        )
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise InvalidRequestError(f"url {url!r} cannot be read: {exc}") from exc
    if parts.scheme not in SCHEMES or not host:
        raise InvalidRequestError(
            f"url {url!r} is not the address of a Triton server; write http://HOST:8000, "
            "grpc://HOST:8001, https://HOST or grpcs://HOST"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise InvalidRequestError(
            "url must hold scheme, host, port and path only; pass credentials with headers"
        )
    path = parts.path.rstrip("/")
    if path and parts.scheme in ("grpc", "grpcs"):
        raise InvalidRequestError(f"url {url!r} has a path, which gRPC has no use for")
    if re.search(r"[^\x21-\x7e]", host + path):
        raise InvalidRequestError(f"url {url!r} holds blanks or characters that are not ASCII")
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], path)


def tls_options(value: object) -> TlsOptions | None:
    """Read `tls`: the options themselves, or a mapping with the same names.

    Raises:
        InvalidTypeError: it is something else.
        InvalidRequestError: a name or a value cannot be used.
    """
    if value is None or isinstance(value, TlsOptions):
        return value
    if not isinstance(value, Mapping):
        raise InvalidTypeError(
            f"tls must be a mapping with ca, certificate, key or insecure, "
            f"got {type(value).__name__}"
        )
    unknown = sorted(map(str, value.keys() - {"ca", "certificate", "key", "insecure"}))
    if unknown:
        raise InvalidRequestError(
            f"tls has no {', '.join(unknown)}; it takes ca, certificate, key and insecure"
        )
    return TlsOptions(**{str(name): each for name, each in value.items()})


def check_tls(tls: TlsOptions | None, address: Address) -> None:
    """Refuse TLS options that would have no effect or cannot be kept.

    Raises:
        InvalidRequestError: what does not fit together.
    """
    if tls is None:
        return
    if not address.secure:
        secure = "grpcs" if address.grpc else "https"
        raise InvalidRequestError(f"tls has no effect on {address}; write {secure}://")
    if tls.key is not None and tls.certificate is None:
        raise InvalidRequestError("tls has a key, but no certificate that belongs to it")
    if not isinstance(tls.insecure, bool):
        raise InvalidTypeError(f"tls insecure must be True or False, got {tls.insecure!r}")
    if tls.insecure and address.grpc:
        raise InvalidRequestError(
            "gRPC always checks the server's certificate; pass tls={'ca': FILE} with the "
            "certificate of its issuer, or use https://"
        )


def checked_headers(headers: Headers | None) -> dict[str, str]:
    """Headers of one request, with names in lower case.

    Raises:
        InvalidTypeError: not a mapping of strings.
        InvalidRequestError: a name or value cannot be sent, or is ours to set.
    """
    given: Any = headers() if callable(headers) else headers
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidTypeError(f"headers must be a mapping, got {type(given).__name__}")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidTypeError(f"header {name!r} must have a string as name and as value")
        # The value may be a secret, so no message shows it.
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise InvalidRequestError(
                f"header {name!r} cannot be sent: use the characters of a header name, and "
                "printable ASCII in the value"
            )
        if name.lower() in _OURS:
            raise InvalidRequestError(f"header {name!r} is set by drut itself; leave it out")
    return {name.lower(): value for name, value in given.items()}


def _check_version(version: object) -> None:
    if version is None or version == "latest":
        return
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidRequestError(
            f"server_version must be 'latest' or a positive whole number, got {version!r}"
        )


def _check_timeout(seconds: object) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise InvalidTypeError(
            f"server_timeout must be a number of seconds, got {type(seconds).__name__}"
        )
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidRequestError(
            f"server_timeout must be a positive number of seconds, got {seconds}"
        )
