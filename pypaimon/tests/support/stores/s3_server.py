"""An S3 server on this machine, what was asked of it, what goes wrong with it, and a catalog of pypaimon on it."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyarrow.fs import S3FileSystem
from pypaimon import CatalogFactory

from support.repository import program
from support.stores.http_server import SOCKET, HttpServer
from support.stores.s3_objects import S3Objects

ACCESS_KEY, SECRET_KEY = "an-access-key", "a-secret-key-that-nobody-may-see"
BUCKET = "lake"
CODES = {
    301: "PermanentRedirect",
    400: "ExpiredToken",
    401: "Unauthorized",
    403: "AccessDenied",
    404: "NoSuchKey",
    500: "InternalError",
}
_SIGNED_BY = re.compile(r"Credential=([^/]+)/")
_CONDITIONS = frozenset(("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"))
Fault = int | str | None


class S3Server:
    """Keeps objects in memory, hears what is asked for, and fails as it is told.

    A fault is a status, `reset` (the connection), `cut` (half of the answer), `lost` (all of it), `hang` (until `go_on`
    is set), or None.

    Attributes:
        keys: Access keys, each with its session token, that requests have to be signed by; None: any will do.
        agents: Requests by programs that call themselves so are refused.
        heeds_conditions: Whether writes with `If-Match` and `If-None-Match` compare, one after the other.
        bare_tags: `If-Match` holds only for a tag without its quotes, as with Ceph's gateway 16.2.
        carried_out: Set once a request that hung has been carried out.
    """

    def __init__(self) -> None:
        self.keys: dict[str, str | None] | None = None
        self.agents = ""
        self.heeds_conditions = True
        self.bare_tags = False
        self.go_on = threading.Event()
        self.hanging = threading.Event()
        self.carried_out = threading.Event()
        self._asked: list[tuple[str, str]] = []
        self._faults: dict[tuple[str, str, str], deque[Fault]] = {}
        self._on_hang: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self.objects = S3Objects()
        self._server = HttpServer(self._answer)
        self.endpoint = self._server.endpoint

    def start(self) -> None:
        """Listen on a free port, with an empty bucket."""
        self._server.start()
        self.file_system(allow_bucket_creation=True).create_dir(BUCKET)

    def stop(self) -> None:
        self.go_on.set()
        self._server.stop()

    @contextmanager
    def asked(self) -> Iterator[list[tuple[str, str]]]:
        """Methods and paths of what is asked for within the block, in order; filled when it ends."""
        found: list[tuple[str, str]] = []
        start = len(self._asked)
        yield found
        found.extend(self._asked[start:])

    @contextmanager
    def failing(
        self, part: str, *faults: Fault, method: str = "", key: str = "", on_hang: Callable[[], object] = lambda: None
    ) -> Iterator[deque[Fault]]:
        """What the next requests within the block come to whose path has a part in it; gives those still to come.

        Args:
            method: Of the requests; empty: any.
            key: Access key that signs the requests; empty: any.
        """
        told = part, method, key
        self._faults[told] = deque(faults)
        self._on_hang = on_hang
        self.go_on.clear()
        self.hanging.clear()
        self.carried_out.clear()
        try:
            yield self._faults[told]
        finally:
            del self._faults[told]
            self.go_on.set()

    @contextmanager
    def behaving(self, *, heeds_conditions: bool = True, bare_tags: bool = False) -> Iterator[None]:
        """Within the block it treats conditions so; what clients have found out before is forgotten."""
        before = self.heeds_conditions, self.bare_tags
        self.heeds_conditions, self.bare_tags = heeds_conditions, bare_tags
        forget_clients()
        try:
            yield
        finally:
            self.heeds_conditions, self.bare_tags = before
            forget_clients()

    def options(self, **changed: str) -> dict[str, str]:
        given = {
            "endpoint": self.endpoint,
            "access-key": ACCESS_KEY,
            "secret-key": SECRET_KEY,
            "region": "us-east-1",
            "path-style-access": "true",
        }
        changes = {key.replace("_", "-"): value for key, value in changed.items()}
        return {f"s3.{key}": value for key, value in {**given, **changes}.items()}

    def catalog(self, warehouse: str, **options: str) -> Any:
        return CatalogFactory.create({"warehouse": f"s3://{BUCKET}/{warehouse}", **self.options(), **options})

    def file_system(self, **settings: Any) -> S3FileSystem:
        given = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "region": "us-east-1"}
        return S3FileSystem(endpoint_override=self.endpoint, **{**given, **settings})

    def put(self, name: str, data: bytes) -> str:
        with self.file_system().open_output_stream(f"{BUCKET}/{name}") as stream:
            stream.write(data)
        return f"s3://{BUCKET}/{name}"

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path = environ["PATH_INFO"].encode("latin-1").decode() + (
            "?" + environ["QUERY_STRING"] if environ.get("QUERY_STRING") else ""
        )
        with self._lock:
            self._asked.append((environ["REQUEST_METHOD"], path))
            method = environ["REQUEST_METHOD"]
            fitting = (
                each
                for (part, wanted, key), each in self._faults.items()
                if part in path and wanted in ("", method) and key in ("", _signer(environ))
            )
            waiting = next((faults for faults in fitting if faults), None)
            fault = waiting.popleft() if waiting else None
        if fault is None and self._is_refused(environ):
            fault = 403
        if fault == "hang":
            self.hanging.set()
            self._on_hang()
            self.go_on.wait(600)
        if isinstance(fault, int):
            return _error(fault, environ, start_response)
        if fault == "lost":
            self._carried_out(environ, lambda *_: None)
        if fault in ("reset", "lost") or (fault == "cut" and environ["REQUEST_METHOD"] == "HEAD"):
            environ[SOCKET].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        answer = self._carried_out(environ, start_response)
        if fault == "hang":
            self.carried_out.set()
        return _half(answer) if fault == "cut" else answer

    def _carried_out(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """What the store answers, with conditions of writes as it treats them."""
        if environ["REQUEST_METHOD"] != "GET" and environ.keys() & _CONDITIONS:
            if not self.heeds_conditions:
                environ = {key: value for key, value in environ.items() if key not in _CONDITIONS}
            elif self.bare_tags and "HTTP_IF_MATCH" in environ:
                tag = environ["HTTP_IF_MATCH"]
                environ = {**environ, "HTTP_IF_MATCH": '"another"' if '"' in tag else f'"{tag}"'}
        return self.objects(environ, start_response)

    def _is_refused(self, environ: dict[str, Any]) -> bool:
        agent = environ.get("HTTP_USER_AGENT", "")
        if self.agents and self.agents in agent:
            return True
        token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN")
        return self.keys is not None and self.keys.get(_signer(environ), ...) != token


def forget_clients() -> None:
    """As in a new process: nothing is known of any store."""
    from pypaimon.streaming.io.object_client import Conditions, ObjectClient

    ObjectClient.of.cache_clear()
    Conditions.of.cache_clear()


def _signer(environ: dict[str, Any]) -> str:
    """The access key that a request is signed by; empty: none."""
    signed = _SIGNED_BY.search(environ.get("HTTP_AUTHORIZATION", ""))
    return "" if signed is None else signed[1]


def _error(status: int, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """As S3 does it, which quotes the token that it refuses."""
    token = environ.get("HTTP_X_AMZ_SECURITY_TOKEN", SECRET_KEY)
    code = CODES.get(status, "SlowDown")
    body = f"<Error><Code>{code}</Code><Message>No.</Message><Token-0>{token}</Token-0></Error>".encode()
    headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
    start_response(f"{status} {code}", headers + ([("x-amz-bucket-region", "eu-west-1")] if status == 301 else []))
    return [body]


def _half(answer: Iterable[bytes]) -> Iterator[bytes]:
    data = b"".join(answer)
    yield data[: len(data) // 2]
    raise ConnectionResetError


def methods(asked: list[tuple[str, str]]) -> Counter[str]:
    """Requests by method; LIST stands for a GET of the bucket."""
    return Counter("LIST" if "list-type=" in path else method for method, path in asked)


class S3Process:
    """A server. `losing` makes it lose an answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = self._answer()

    @contextmanager
    def losing(self, part: str) -> Iterator[None]:
        """The answer to the first PUT within the block whose path has a part in it is lost; there must be one."""
        self._ask(part)
        yield
        assert self._ask("") == "lost"

    def _ask(self, part: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{part}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def s3_process() -> Iterator[S3Process]:
    """A server, with an empty bucket."""
    command = program("support.stores.s3_server")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield S3Process(process)
        finally:
            process.kill()


def _serve() -> None:
    """Each line tells the part of a path; an empty one asks whether the answer was lost."""
    server = S3Server()
    server.start()
    print(server.endpoint, flush=True)
    while part := sys.stdin.readline().strip():
        with server.failing(part, "lost", method="PUT") as left:
            print("fails", flush=True)
            sys.stdin.readline()
            print("not lost" if left else "lost", flush=True)


if __name__ == "__main__":
    _serve()
