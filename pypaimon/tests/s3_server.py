"""An S3 server on this machine, what was asked of it, and a catalog of pypaimon on it."""

from __future__ import annotations

import logging
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem
from pypaimon import CatalogFactory

ACCESS_KEY, SECRET_KEY = "an-access-key", "a-secret-key-that-nobody-may-see"
_BUCKET = "lake"
_LINE = re.compile(r"(?P<method>[A-Z]+) (?P<path>/\S*) HTTP/")


class S3Server(logging.Handler):
    """Keeps objects in memory, and hears what is asked for through the server's own log."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: list[tuple[str, str]] = []
        self._asking = threading.Lock()
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._log = logging.getLogger("werkzeug")

    def start(self) -> None:
        """Listen on a free port, with an empty bucket."""
        self._log.addHandler(self)
        self._log.setLevel(logging.INFO)
        self._log.propagate = False
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=self.endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
        ).create_dir(_BUCKET)

    def stop(self) -> None:
        """End it."""
        self._server.stop()
        self._log.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        found = _LINE.search(record.getMessage())
        if found:
            with self._asking:
                self._asked.append((found["method"], found["path"]))

    @contextmanager
    def asked(self) -> Iterator[list[tuple[str, str]]]:
        """Methods and paths of what is asked for within the block, in order; filled when it ends."""
        found: list[tuple[str, str]] = []
        start = len(self._asked)
        yield found
        found.extend(self._asked[start:])

    def catalog(self, warehouse: str) -> Any:
        """A catalog below the bucket."""
        return CatalogFactory.create(
            {
                "warehouse": f"s3://{_BUCKET}/{warehouse}",
                "s3.endpoint": self.endpoint,
                "s3.access-key": ACCESS_KEY,
                "s3.secret-key": SECRET_KEY,
                "s3.region": "us-east-1",
                "s3.path-style-access": "true",
            }
        )


def methods(asked: list[tuple[str, str]]) -> Counter[str]:
    """Requests by method; LIST stands for a GET of the bucket."""
    return Counter("LIST" if "list-type=" in path else method for method, path in asked)
