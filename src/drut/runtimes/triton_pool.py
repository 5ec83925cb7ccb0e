"""HTTP connections to one server: reused, bounded by a deadline, and not kept idle for long."""

import contextlib
import io
import select
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage, HTTPResponse, RemoteDisconnected
from typing import Any, Final, NamedTuple

from drut.runtimes.triton_errors import AttemptError, expired, incomplete, unreachable, untrusted
from drut.runtimes.triton_options import Address, TlsOptions

CONNECT_SECONDS: Final = 2.0
"""A machine that is there accepts faster; one that is not must not eat the whole deadline."""

IDLE_SECONDS: Final = 5.0
"""An idle connection keeps Triton from ending, so none is kept for longer."""

_TICK: Final = 0.002  # seconds by which a timeout may end early

LONGEST_ANSWER: Final = 1 << 26
"""Bytes of a response body; the answer to a full pass is a thousandth of it."""


class Request(NamedTuple):
    """What is sent. The headers are checked, the path is quoted."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""

    def on_the_wire(self, host: str) -> bytes:
        """The whole request, for one write."""
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            f"host: {host}",
            "accept-encoding: identity",
            *(f"{name}: {value}" for name, value in self.headers.items()),
            f"content-length: {len(self.body)}",
            "\r\n",
        ]
        return "\r\n".join(lines).encode("ascii") + self.body


class Reply(NamedTuple):
    """A complete response."""

    status: int
    headers: HTTPMessage
    body: bytes


class HttpPool:
    """Sends requests to one server over connections of its own. Safe to use from many threads.

    A connection belongs to one request at a time. One that failed, or was not read to its end, is
    closed and never used again, so a late answer cannot reach another request.
    """

    def __init__(
        self, address: Address, tls: TlsOptions | None, *, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._address = address
        self._url = str(address)
        self._tls = _tls_context(tls) if address.secure else None
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()  # guards what follows; never held while anything is sent
        self._idle: list[_Connection] = []  # the one used last at the end
        self._timer: threading.Timer | None = None
        self._closed = False

    def send(self, request: Request, seconds: float) -> Reply:
        """Send one request and read the whole response.

        Raises:
            AttemptError: what went wrong; it may be repeated where no response had begun.
        """
        until = time.monotonic() + seconds
        used = self._take()
        if used is not None:
            try:
                return self._exchange(used, request, until)
            except AttemptError as failure:
                # The server may have closed it just then: that says nothing about the server.
                if not failure.again:
                    raise
        try:
            fresh = _Connection(self._address, self._tls, until)
        except (OSError, ValueError) as exc:
            raise self._failure(exc, until) from exc
        return self._exchange(fresh, request, until)

    def close(self) -> None:
        """Close the idle connections, and each of the others when its request ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        for connection in idle:
            connection.close()
        if timer is not None and timer is not threading.current_thread():
            timer.join()

    def _exchange(self, connection: "_Connection", request: Request, until: float) -> Reply:
        kept = False
        try:
            reply, kept = connection.exchange(request, until)
        except (OSError, HTTPException, ValueError) as exc:
            raise self._failure(exc, until, answered=connection.answered) from exc
        finally:
            if kept:
                self._give_back(connection)
            else:
                connection.close()
        return reply

    def _failure(self, exc: Exception, until: float, *, answered: bool = False) -> AttemptError:
        if isinstance(exc, TimeoutError) and time.monotonic() > until - _TICK:
            return expired(self._url)
        if answered or isinstance(exc, HTTPException):
            if isinstance(exc, RemoteDisconnected):
                return unreachable(self._url, exc)
            return incomplete(self._url, f"it ended early or is not HTTP ({_named(exc)})")
        if isinstance(exc, ssl.SSLError) and not isinstance(exc, ssl.SSLEOFError):
            return untrusted(self._url, exc)
        return unreachable(self._url, exc)

    def _take(self) -> "_Connection | None":
        while True:
            with self._lock:
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if connection.usable(time.monotonic() - self._idle_seconds):
                return connection
            connection.close()

    def _give_back(self, connection: "_Connection") -> None:
        connection.since = time.monotonic()
        with self._lock:
            if not self._closed:
                self._idle.append(connection)
                if self._timer is None:
                    self._wake_in(self._idle_seconds)
                return
        connection.close()

    def _wake_in(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._sweep)
        timer.name = "drut-triton-idle"
        timer.daemon = True
        with contextlib.suppress(RuntimeError):  # the interpreter is ending: no thread starts
            timer.start()
            self._timer = timer

    def _sweep(self) -> None:
        """Close what was idle for too long, and come again while anything is left."""
        before = time.monotonic() - self._idle_seconds
        with self._lock:
            old = [each for each in self._idle if each.since <= before]
            self._idle = [each for each in self._idle if each.since > before]
            self._timer = None
            if self._idle and not self._closed:
                self._wake_in(self._idle[0].since - before)
        for connection in old:
            connection.close()


class _Connection:
    """One connection, every step of which ends in time."""

    def __init__(self, address: Address, tls: ssl.SSLContext | None, until: float) -> None:
        self.answered = False  # whether any of the response has arrived
        self.since = 0.0  # idle since
        self._host = address.authority
        self._until = until
        self._socket = _connect(address, tls, until)

    def exchange(self, request: Request, until: float) -> tuple[Reply, bool]:
        """Send a request and read the response; also whether the connection can be kept."""
        self._until = until
        self.answered = False
        self._send(request.on_the_wire(self._host))
        response = HTTPResponse(_Reading(self), method=request.method)  # type: ignore[arg-type]
        try:
            response.begin()
            content = response.read(LONGEST_ANSWER)
            if response.length or len(content) == LONGEST_ANSWER:
                raise HTTPException(f"only {len(content)} bytes of the body were read")
            # Chunks end with an empty one, which is read here.
            kept = (response.isclosed() or not response.read(1)) and not response.will_close
        finally:
            response.close()
        return Reply(response.status, response.headers, content), kept

    def receive(self, into: Any) -> int:
        """Read what has arrived, waiting no longer than the deadline."""
        self._socket.settimeout(self._seconds())
        count: int = self._socket.recv_into(into)
        self.answered = self.answered or count > 0
        return count

    def usable(self, oldest: float) -> bool:
        """Whether it was used lately and the server has neither closed it nor said anything."""
        if self.since < oldest:
            return False
        if hasattr(select, "poll"):  # select.select cannot look at more than 1024 files
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return not poll.poll(0)
        return not select.select([self._socket], [], [], 0)[0]

    def close(self) -> None:
        self._socket.close()

    def _send(self, data: bytes) -> None:
        # Not sendall: under TLS every one of its steps would have the whole timeout.
        left = memoryview(data)
        while left:
            self._socket.settimeout(self._seconds())
            left = left[self._socket.send(left) :]

    def _seconds(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left


class _Reading(io.RawIOBase):
    """What `HTTPResponse` takes for a socket: reads of a connection, up to its deadline."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self, 1 << 16)

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        return self._connection.receive(into)


def _connect(address: Address, tls: ssl.SSLContext | None, until: float) -> socket.socket:
    """Connect to the first of the host's addresses that accepts."""
    latest = min(until, time.monotonic() + CONNECT_SECONDS)
    last: OSError = OSError(f"{address.host} has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM
    ):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(latest - time.monotonic(), 0.001))
            sock.connect(place)
            # A long request is several packets, the last of which must not wait.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if tls is None else tls.wrap_socket(sock, server_hostname=address.host)
        except OSError as exc:
            sock.close()
            last = exc
    raise last


def _tls_context(tls: TlsOptions | None) -> ssl.SSLContext:
    tls = tls or TlsOptions()
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    return context


def _named(exc: BaseException) -> str:
    return f"{type(exc).__name__}: {exc}" if str(exc) else type(exc).__name__
