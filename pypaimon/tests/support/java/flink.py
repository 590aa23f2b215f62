"""A live Flink with Paimon, from Maven: jobs that write tables, and streams that read them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from support.java.live import SOURCES, JavaProgram, class_path

Change = tuple[Any, ...]
"""A row kind, then the values of the columns."""
COMMITS = {"execution.checkpointing.interval": "300 ms"}
"""A sink of Paimon commits at checkpoints."""


class LiveFlink(JavaProgram):
    """One JVM that obeys `live_java/flink/Flink.java`. Threads may call it."""

    def __init__(self) -> None:
        opened = [f"--add-opens=java.base/java.{each}=ALL-UNNAMED" for each in ("util", "lang", "nio")]
        super().__init__("Flink", class_path(SOURCES / "flink"), "-Xmx2g", *opened)
        self._lock = threading.Lock()

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        with self._lock:
            return super().call(do, **arguments)


class Feed:
    """Rows with their kinds that a test gives to a job of Flink: a table `name` of its statements."""

    def __init__(self, flink: LiveFlink, columns: Mapping[str, str]) -> None:
        self._flink, self.name = flink, f"feed_{uuid4().hex}"
        flink.call("feed", name=self.name, columns=list(columns.items()))

    def push(self, *rows: Sequence[Any]) -> None:
        self._flink.call("push", name=self.name, rows=rows)

    def end(self) -> None:
        """Jobs end after the rows that were given, and commit them."""
        self._flink.call("end", name=self.name)

    def fail(self) -> None:
        """The job that reads it fails once, and continues from its last checkpoint."""
        self._flink.call("fail", name=self.name)


class Job:
    """A job that runs.

    Attributes:
        warehouse: Where its tables are.
    """

    def __init__(self, flink: LiveFlink, name: str, warehouse: Path) -> None:
        self._flink, self._name, self.warehouse = flink, name, warehouse

    def wait(self) -> None:
        """Wait for the end of its feeds."""
        self._flink.call("wait", name=self._name)

    def stop(self) -> str:
        """Stop it with a savepoint; what came before is committed."""
        found = self._flink.call("stop", name=self._name, directory=str(self.warehouse / "savepoints"))
        return str(found["savepoint"])

    def changes(self) -> list[Change]:
        """What a query has given until now."""
        return [tuple(row) for row in self._flink.call("changes", name=self._name)["rows"]]


class FlinkCatalog:
    """The tables of a warehouse, in its database `db`, for Flink."""

    def __init__(self, flink: LiveFlink, warehouse: Path) -> None:
        self.flink, self.warehouse = flink, warehouse

    def _call(self, do: str, settings: Mapping[str, str], **arguments: Any) -> dict[str, Any]:
        return self.flink.call(do, warehouse=str(self.warehouse), settings=dict(settings), **arguments)

    def sql(self, *statements: str, **settings: str) -> list[Change]:
        """Run statements to their end, in batch mode; the rows of the last one."""
        answer = self._call("sql", {"parallelism.default": "1", **settings}, statements=statements)
        return [tuple(row) for row in answer["rows"]]

    def run(self, *statements: str, feeds: Sequence[Feed] = (), savepoint: str | None = None) -> Job:
        """Start a job of INSERT statements, after the other ones."""
        given = {} if savepoint is None else {"execution.state-recovery.path": savepoint}
        return self._start("run", 2, given, statements=statements, feeds=[feed.name for feed in feeds])

    def compact(self, table: str) -> Job:
        """Start the job that compacts a table."""
        return self._start("compact", 2, {}, table=table)

    def follow(self, query: str) -> Job:
        """Start a query whose changes are collected."""
        return self._start("follow", 1, {}, query=query)

    def _start(self, do: str, parallelism: int, settings: Mapping[str, str], **arguments: Any) -> Job:
        name = uuid4().hex
        self._call(do, {**COMMITS, "parallelism.default": str(parallelism), **settings}, name=name, **arguments)
        return Job(self.flink, name, self.warehouse)
