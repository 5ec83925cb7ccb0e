"""A stand-in for the model hub on 127.0.0.1, as far as `snapshot_download` speaks to it.

It serves repositories made of bytes, remembers what was asked, and fails as told.
"""

import hashlib
import json
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants

MAIN = "1" * 40
"""Commit of the branch `main` of every repository."""

SMALL = 10_000
"""Files above this many bytes are listed as large ones, with a SHA-256."""


@dataclass(frozen=True)
class Asked:
    """One request."""

    method: str
    path: str
    token: str | None
    start: int = 0  # first byte that was asked for


@dataclass
class Repository:
    """Files by commit and path, and commits by branch or tag."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def add(self, files: dict[str, bytes], *names: str, commit: str = MAIN) -> None:
        self.commits[commit] = files
        self.names |= dict.fromkeys((*names, commit), commit)


@dataclass
class Fault:
    """What goes wrong with requests whose path contains `where`.

    `body`: "short" announces and sends half of it, "cut" breaks off after half, "none" closes the
    connection without an answer, "page" sends a web page instead.
    """

    where: str
    method: str = "GET"
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Literal["short", "cut", "none", "page"] | None = None
    times: int = 1_000

    def applies(self, method: str, path: str) -> bool:
        return self.times > 0 and self.method == method and self.where in path


class HubServer:
    """The hub. `url` is its endpoint."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: list[Fault] = []
        self.token: str | None = None  # required if set
        self._asked: list[Asked] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def asked(self) -> list[Asked]:
        """Requests about repositories, in the order of their arrival."""
        return [each for each in self._asked if "agent-harnesses" not in each.path]

    @property
    def downloaded(self) -> set[str]:
        """Paths of the files whose content was asked for."""
        found = (each.path for each in self.asked if each.method == "GET")
        return {
            path.split("/resolve/")[1].split("/", 1)[1] for path in found if "/resolve/" in path
        }

    def add(self, repository: str, files: dict[str, bytes]) -> Repository:
        """Publish files as the branch `main`."""
        made = self.repositories.setdefault(repository, Repository())
        made.add(files, "main")
        return made

    def fail(self, where: str, **how: Any) -> Fault:
        """Let requests about `where` fail; the first fault that applies counts."""
        self.faults.append(Fault(where, **how))
        return self.faults[-1]

    def forget(self) -> None:
        """Start recording afresh."""
        self._asked.clear()

    def record(self, asked: Asked) -> None:
        self._asked.append(asked)

    @contextmanager
    def running(self) -> Generator["HubServer", None, None]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.stop()
            thread.join()

    def stop(self) -> None:
        """Refuse connections from now on. May be called twice."""
        self._server.shutdown()
        self._server.server_close()


def files_of(directory: Path, prefix: str = "") -> dict[str, bytes]:
    """Content of a directory by path, under a prefix such as `subfolder/`."""
    return {
        prefix + path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def _handler(hub: HubServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_HEAD(self) -> None:
            self._answer()

        def log_message(self, *args: Any) -> None:
            pass

        def _answer(self) -> None:
            parts = [unquote(part) for part in urlsplit(self.path).path.split("/")]
            path = "/".join(parts)
            given = (self.headers.get("authorization") or "").removeprefix("Bearer ") or None
            hub.record(Asked(self.command, path, given, self._start()))
            fault = next((each for each in hub.faults if each.applies(self.command, path)), None)
            if fault is not None:
                fault.times -= 1
                if fault.body == "none":
                    self.close_connection = True
                    return
                if fault.status is not None:
                    self._send(fault.status, b"", fault.headers)
                    return
            if hub.token is not None and given != hub.token:
                self._refuse(401, "Invalid credentials in Authorization header")
                return
            self._route(parts[1:], fault)

        def _start(self) -> int:
            wanted = self.headers.get("range") or "bytes=0-"
            return int(wanted.removeprefix("bytes=").split("-")[0])

        def _route(self, parts: list[str], fault: Fault | None) -> None:
            api = parts[:2] == ["api", "models"]
            names = parts[2:] if api else parts
            repository = hub.repositories.get("/".join(names[:2]))
            if repository is None:
                self._refuse(404, "Repository not found", "RepoNotFound")
                return
            what, revision, *rest = [*names[2:], "revision", "main"][:2] + names[4:]
            commit = repository.names.get(revision)
            if commit is None:
                self._refuse(404, "Invalid rev id", "RevisionNotFound")
            elif not api:
                self._file(repository.commits[commit], commit, "/".join(rest), fault)
            elif fault is not None and fault.body == "page":
                self._send(200, b"<html>sign in</html>", {"Content-Type": "text/html"})
            elif what == "tree":
                self._json(list(_tree(repository.commits[commit])))
            else:
                self._json({"id": "/".join(names[:2]), "sha": commit, "siblings": [], "tags": []})

        def _file(
            self, files: dict[str, bytes], commit: str, path: str, fault: Fault | None
        ) -> None:
            content = files.get(path)
            if content is None:
                self._refuse(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit})
                return
            headers = {"X-Repo-Commit": commit, "ETag": f'"{_etag(content)}"'}
            headers["Accept-Ranges"] = "bytes"
            status, start = 200, self._start()
            if self.headers.get("range"):
                headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
                status = 206
            self._send(status, content[start:], headers, fault.body if fault else None)

        def _refuse(
            self, status: int, message: str, code: str = "", more: dict[str, str] | None = None
        ) -> None:
            headers = {"X-Error-Message": message, **(more or {})}
            if code:
                headers["X-Error-Code"] = code
            self._send(status, b"", headers)

        def _json(self, value: Any) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(
            self, status: int, body: bytes, headers: dict[str, str], broken: str | None = None
        ) -> None:
            half = body[: len(body) // 2]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(half if broken == "short" else body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(half if broken in ("short", "cut") else body)

    return Handler


def _tree(files: dict[str, bytes]) -> Iterable[dict[str, Any]]:
    for path, content in files.items():
        entry: dict[str, Any] = {
            "type": "file",
            "path": path,
            "size": len(content),
            "oid": hashlib.sha1(content).hexdigest(),
        }
        if len(content) > SMALL:
            entry["lfs"] = {"oid": _etag(content), "size": len(content), "pointerSize": 134}
        yield entry
    for folder in {str(Path(path).parent) for path in files} - {"."}:
        yield {"type": "directory", "path": folder, "oid": "0" * 40}


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def point_client_at(
    server: HubServer, directory: Path, monkeypatch: pytest.MonkeyPatch, *, bars: bool
) -> None:
    """The hub's client talks to the stand-in and keeps its files below an own directory."""
    changes = {
        "ENDPOINT": server.url,
        "HUGGINGFACE_CO_URL_TEMPLATE": server.url + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(directory / "cache"),
        "HF_TOKEN_PATH": str(directory / "no-token"),
        "AGENT_HARNESSES_PATH": str(directory / "harnesses.json"),
        "HF_HUB_OFFLINE": False,
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_DISABLE_PROGRESS_BARS": None if bars else True,
    }
    for name, value in changes.items():
        monkeypatch.setattr(constants, name, value, raising=False)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
