"""What a stream asks of an object store, counted there: with the client of the extra `fast`, and without it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import AsyncStreamingTableScan, StreamReadBuilder
from pypaimon.streaming.io import remote_files
from pypaimon.streaming.io.store import Store
from support.stores.s3_server import S3Server, methods
from support.tables.handles import write_by_pypaimon

pytestmark = pytest.mark.server

COLUMNS = pa.schema([("k", pa.int64()), ("v", pa.float64())])
BEHIND = 4


class Site:
    def __init__(self, server: S3Server, name: str) -> None:
        self.server = server
        self._catalog = server.catalog("requests")
        self._catalog.create_database("db", True)
        self._name = f"db.{name}"
        self._catalog.create_table(self._name, Schema.from_pyarrow_schema(COLUMNS), False)
        self._writer = self._catalog.get_table(self._name)
        self.commit(1)

    def commit(self, rows: int) -> None:
        write_by_pypaimon(
            self._writer, pa.table({"k": np.arange(rows), "v": np.random.default_rng(0).random(rows)}, COLUMNS)
        )

    def builder(self) -> StreamReadBuilder:
        """A builder without plans ahead, so that each request belongs to the plan that was asked for."""
        builder = StreamReadBuilder(self._catalog.get_table(self._name)).with_start("latest").with_prefetch(0)
        return builder.with_catch_up("replay")

    def caught_up(self) -> AsyncStreamingTableScan:
        scan = self.builder().new_streaming_scan()
        assert [scan.plan(), scan.plan()] == [None, None]
        return scan

    def cost(self, step: Any, *args: Any) -> Counter[str]:
        with self.server.asked() as asked:
            step(*args)
        repeated = [path for (_, path), number in Counter(asked).items() if number > 1]
        assert not [path for path in repeated if "/manifest" in path]
        return methods(asked)


@pytest.fixture
def site(server: S3Server, request: pytest.FixtureRequest, fast: bool) -> Site:
    name = request.node.name
    return Site(server, "".join(character if character.isalnum() else "_" for character in name).lower())


def test_an_idle_poll_is_one_request(site: Site, fast: bool) -> None:
    with site.caught_up() as scan:
        assert site.cost(scan.plan) == ({"GET": 1} if fast else {"HEAD": 1})


def test_a_new_snapshot_when_caught_up(site: Site, fast: bool) -> None:
    """The snapshot, the one before it once more, its manifest list, its manifest; the poll that finds nothing more."""
    with site.caught_up() as scan:
        for _ in range(2):
            site.commit(1)

            def step() -> None:
                assert scan.plan() is not None
                assert scan.plan() is None

            cost = site.cost(step)
            # Without the client of `fast`, the tag of the snapshot before shows that it is unchanged.
            assert cost == ({"GET": 4 + 1} if fast else {"GET": 3, "HEAD": 4 + 1})


def test_each_snapshot_while_catching_up(site: Site, fast: bool) -> None:
    with site.caught_up() as scan:
        for _ in range(BEHIND):
            site.commit(1)

        def step() -> None:
            for _ in range(BEHIND):
                assert scan.plan() is not None

        cost = site.cost(step)
        # Beside: the hint, the snapshot before each of three windows, and the end of the last window.
        least, fixed = (3, 5) if fast else (6, 6)
        assert cost.total() == least * BEHIND + fixed, cost
        assert set(cost) == ({"GET"} if fast else {"GET", "HEAD"})


def test_a_small_file_is_one_request(site: Site, fast: bool) -> None:
    with site.caught_up() as scan:
        site.commit(10)
        plan = scan.plan()
        assert plan is not None
        read = site.builder().new_read()
        rows: list[pa.Table] = []
        assert site.cost(lambda: rows.append(read.to_arrow(plan.splits()))) == {"GET": 1} | (
            {} if fast else {"HEAD": 1}
        )
        assert rows[0]["k"].to_pylist() == list(range(10))


def test_a_large_file_is_read_in_ranges_and_its_end_gives_its_size(
    site: Site, fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_files, "WHOLE_BYTES", 1 << 10)
    with site.caught_up() as scan:
        site.commit(200_000)
        plan = scan.plan()
        assert plan is not None
        read = site.builder().with_projection(["v"]).new_read()
        rows: list[pa.Table] = []
        cost = site.cost(lambda: rows.append(read.to_arrow(plan.splits())))
        # The end; the columns of its row group.
        assert cost == ({"GET": 2} if fast else {"HEAD": 1, "GET": 2})
        assert rows[0].num_rows == 200_000


def test_an_object_that_has_not_changed_is_one_request_and_one_that_has_is_read_again(
    server: S3Server, site: Site, fast: bool
) -> None:
    table = site.builder().table
    path, store = f"{table.table_path}/snapshot/object", Store(table.file_io)
    contents = [b"a" * 100, b"b" * 100, b"b" * (1 << 20), b"c"]
    for content in contents:
        store.write_atomic(path, content)
        assert store.read(path) == content
        again = Counter({"GET": 1}) if fast else Counter({"HEAD": 1})
        if len(content) > 1 << 14 and not fast:
            # Large ones are not kept.
            again["GET"] = 1
        assert site.cost(lambda: store.read(path)) == again
    store.delete(path)
    with pytest.raises(FileNotFoundError):
        store.read(path)
