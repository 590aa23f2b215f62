"""Processes that share a table, are killed, paused and joined by others: every row, in order, and again only what was
not confirmed."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import compact
from support.groups.readers import SLOTS, Readers
from support.samples import SOAK, how_to_repeat, sample_seed
from support.stores.s3_server import BUCKET, S3Server
from support.tables.handles import write_by_stream

pytestmark = [pytest.mark.server, pytest.mark.soak]

STEPS = 500 if SOAK else 6
MOST = 8 if SOAK else 3
STORES = ("local", "objects")
"""Without the long form, the seed picks one of them."""
COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False)])
BY_REMAINDER = {"bucket": str(SLOTS), "bucket-key": "k", "bucket-function.type": "mod", "write-only": "true"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], BY_REMAINDER),
    "keyed": (["k"], BY_REMAINDER),
    "unaware": ([], {"bucket": "-1"}),
}


class Source:
    """A table that is written and compacted while it is read. Its buckets, if it has any, are remainders of keys."""

    def __init__(self, catalog: dict[str, str], kind: str) -> None:
        self._catalog = CatalogFactory.create(catalog)
        self._catalog.create_database("db", True)
        keys, options = KINDS[kind]
        schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=keys or None, options=options)
        self._catalog.create_table("db.t", schema, False)
        self.keys: set[int] = set()

    @property
    def table(self) -> Any:
        return self._catalog.get_table("db.t")

    def write(self, count: int) -> None:
        keys = range(len(self.keys), len(self.keys) + count)
        write_by_stream(self.table, pa.table({"k": list(keys)}, schema=COLUMNS))
        self.keys.update(keys)


@pytest.mark.parametrize("store", STORES if SOAK else [STORES[sample_seed() % 2]])
def test_processes_come_and_go_and_no_row_is_lost(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    draw = random.Random(sample_seed())
    catalog: dict[str, Any] = {"warehouse": str(tmp_path / "w")}
    pace: dict[str, float] = {"session": 1.5, "poll_ms": 50}
    if store == "objects":
        # The server has one core for eight processes.
        pace = {"session": 4.0, "poll_ms": 400}
        server: S3Server = request.getfixturevalue("server")
        catalog = {"warehouse": f"s3://{BUCKET}/{tmp_path.name}", **server.options()}
    kind = draw.choice(sorted(KINDS))
    source = Source(catalog, kind)
    source.write(100)
    settings = {"catalog": catalog, "table": "db.t", **pace}
    with Readers(tmp_path, settings) as readers:
        live(readers, source, draw)
        readers.wait(source.table)
        for reader in readers.running:
            readers.end(reader)
        print(kind, how_to_repeat())
        readers.check(source.keys)
        if kind != "unaware":
            readers.check_order(lambda key: key % SLOTS)
        assert not readers.errors()


def live(readers: Readers, source: Source, draw: random.Random) -> None:
    """Disturb them at random, then let all of them finish."""
    readers.start()
    for _ in range(STEPS):
        source.write(draw.randrange(1, 60))
        time.sleep(draw.random())
        running = readers.running
        what = draw.choice(("start", "start", "kill", "pause", "resume", "end", "compact", "nothing"))
        if what == "start" and len(running) < MOST:
            readers.start()
        elif what == "kill" and running:
            readers.kill(draw.choice(running))
        elif what == "pause" and running:
            readers.pause(draw.choice(running))
        elif what == "resume" and readers.paused:
            readers.resume(draw.choice(readers.paused))
        elif what == "end" and len(running) > 1:
            readers.end(draw.choice(running))
        elif what == "compact":
            compact(source.table, full=True)
    for reader in readers.paused:
        readers.resume(reader)
    if not readers.running:
        readers.start()
