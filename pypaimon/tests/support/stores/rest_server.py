"""A REST catalog on this machine of one table in an object store, which lends keys that run out."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pypaimon.common.json_util import JSON

from support.stores.s3_server import ACCESS_KEY, SECRET_KEY, S3Server

HOUR = 3_600_000


class RestServer:
    """Answers for a table, whose object store takes the keys that it lends, for two hours, or until it is told not to.

    Attributes:
        options: Of a catalog, and of Spark's source, that ask it.
        rules: What it answers who asks for what of the table may be seen; None: nobody has to ask.
    """

    def __init__(self, store: S3Server, table: Any, now_millis: Callable[[], int]) -> None:
        self._store, self._table, self._now = store, table, now_millis
        self.lent = 0
        self.rules: dict[str, Any] | None = None
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(answers.answer(self.path.partition("?")[0])).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.do_GET()

            def log_message(self, *_: Any) -> None:
                """Nothing is told."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        place = {"endpoint": store.endpoint, "region": "us-east-1", "path-style-access": "true"}
        self.options = {
            "metastore": "rest",
            "uri": f"http://127.0.0.1:{self._server.server_port}",
            "warehouse": "lake",
            "token.provider": "bear",
            "token": "anybody",
            "data-token.enabled": "true",
            **{f"s3.{key}": value for key, value in place.items()},
        }

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def revoke(self) -> None:
        """From here on the object store refuses what was lent."""
        self._store.keys = {ACCESS_KEY: None}

    def answer(self, path: str) -> dict[str, Any]:
        if path.endswith("/config"):
            return {"defaults": {}, "overrides": {}}
        if path.endswith("/token"):
            return self._token()
        if path.endswith("/snapshot"):
            return {"snapshot": self._snapshot()}
        if path.endswith("/auth"):
            return self.rules or {}
        schema = self._table.table_schema
        options = schema.options if self.rules is None else {**schema.options, "query-auth.enabled": "true"}
        columns = [{"id": each.id, "name": each.name, "type": str(each.type)} for each in schema.fields]
        made = {"fields": columns, "partitionKeys": [], "primaryKeys": [], "options": options, "comment": ""}
        return {
            "id": "the-table", "name": "t", "path": str(self._table.table_path), "isExternal": False,
            "schemaId": schema.id, "schema": made,
        }  # fmt: skip

    def _snapshot(self) -> dict[str, Any]:
        latest = self._table.snapshot_manager().get_latest_snapshot()
        sizes = dict.fromkeys(("recordCount", "fileSizeInBytes", "fileCount", "lastFileCreationTime"), 0)
        return {"snapshot": json.loads(JSON.to_json(latest)), **sizes}

    def _token(self) -> dict[str, Any]:
        self.lent += 1
        key, session = f"key-{self.lent}", f"session-{self.lent}"
        self._store.keys = {**(self._store.keys or {ACCESS_KEY: None}), key: session}
        lent = {"fs.s3.accessKeyId": key, "fs.s3.accessKeySecret": SECRET_KEY, "fs.s3.securityToken": session}
        return {"token": lent, "expiresAtMillis": self._now() + 2 * HOUR}
