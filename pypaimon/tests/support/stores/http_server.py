"""A small HTTP server for WSGI applications: one request a connection, a third of the time that werkzeug's takes."""

from __future__ import annotations

import io
import socketserver
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote_to_bytes

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
SOCKET = "pypaimon.socket"
"""The key of the connection in the environment of a request."""


class HttpServer:
    """Listens on a free port of this machine. Each request runs in a thread of its own.

    Args:
        application: Answers the requests; if it raises `ConnectionResetError`, the connection ends there.
    """

    def __init__(self, application: Application) -> None:
        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                if environ := _read(self.rfile, self.connection):
                    _answer(application, environ, self.connection)

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are part of the tests."""


def _read(file: Any, connection: Any) -> dict[str, Any] | None:
    """The environment of a request; None: the client has hung up."""
    line = file.readline().decode("latin-1").split()
    if len(line) != 3:
        return None
    method, target, _ = line
    path, _, query = target.partition("?")
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(path).decode("latin-1"),
        "QUERY_STRING": query,
        "RAW_URI": target,
        "REQUEST_URI": target,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": str(connection.getsockname()[1]),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": io.StringIO(),
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        SOCKET: connection,
    }
    while (header := file.readline().strip()) != b"":
        name, _, value = header.decode("latin-1").partition(":")
        key = name.upper().replace("-", "_")
        environ[key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"] = value.strip()
    if environ.get("HTTP_EXPECT", "").lower() == "100-continue":
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    if environ.pop("HTTP_TRANSFER_ENCODING", "").lower() == "chunked":
        body = unchunked(file)
        environ["CONTENT_LENGTH"] = str(len(body))
    else:
        body = file.read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return environ


def unchunked(file: Any) -> bytes:
    """The data of chunks, without their signatures, and without what follows the last one."""
    parts = []
    while size := int(file.readline().partition(b";")[0].strip() or b"0", 16):
        parts.append(file.read(size))
        file.readline()
    while file.readline().strip():
        pass
    return b"".join(parts)


def _answer(application: Application, environ: dict[str, Any], connection: Any) -> None:
    head, body = list[bytes](), list[bytes]()

    def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], object]:
        lines = [f"HTTP/1.1 {status}", f"Date: {formatdate(usegmt=True)}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers if name.lower() != "date"]
        head.append("\r\n".join([*lines, "\r\n"]).encode("latin-1"))
        return body.append

    # What there is of an answer that is cut off is sent.
    with suppress(ConnectionResetError):
        body.extend(application(environ, start_response))
    connection.sendall(b"".join(head if environ["REQUEST_METHOD"] == "HEAD" else head + body))
