"""Command: an S3 server (moto) on 127.0.0.1 that counts requests. Prints its port; ends with its standard input."""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

COUNTS = "/__requests__"


class Counting:
    """A WSGI application that counts the requests to another one by method; GET of `COUNTS` returns and resets them."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            if environ["PATH_INFO"] == COUNTS:
                counts, self._counts = dict(self._counts), Counter()
                start_response("200 OK", [("Content-Type", "application/json")])
                return [json.dumps(counts).encode()]
            self._counts[environ["REQUEST_METHOD"]] += 1
        return self._application(environ, start_response)


def main() -> None:
    """Serve until standard input ends."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = Counting(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
