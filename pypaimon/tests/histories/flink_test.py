"""A live Flink beside ours, on the same tables at the same time: what either reads is what the other one wrote.

`make flink` and the nightly workflow run it; the machine needs Maven and a JDK.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import (
    Compactor,
    MaintenancePolicy,
    compact,
    list_consumers,
    maintain,
    stream_read_builder,
    stream_write_builder,
)
from pypaimon.streaming.maintenance import list_tags
from support.java.flink import Change, Feed, FlinkCatalog, Job, LiveFlink
from support.samples import seeded
from support.tables.followers import Followers, changes_of, sorted_rows, without_nulls
from support.waits import until

pytestmark = pytest.mark.flink

ROUNDS, CHANGES, KEYS = 6, 40, 15
FROM_FIRST = (
    "'scan.mode'='from-snapshot', 'scan.snapshot-id'='1', 'continuous.discovery-interval'='50 ms', "
    "'scan.remove-normalize'='true'"
)
"""Flink's stream of all changes, as they are in the files."""
ARROW = {"BIGINT": pa.int64(), "INT": pa.int32(), "STRING": pa.string()}


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        columns: Without `k`.
        kinds: Row kinds that are written.
        is_keyed: Whether `k` is the primary key.
        logs_updates: Whether its changelog has the row before each update.
    """

    options: Mapping[str, str]
    columns: Mapping[str, str] = field(default_factory=lambda: {"v": "STRING", "n": "INT"})
    kinds: Sequence[str] = ("+I", "+U", "-D")
    is_keyed: bool = True
    logs_updates: bool = True


CONSUMERS = {"consumer.expiration-time": "1 d"}
"""Flink refuses consumers without it."""
BUCKETS = {"bucket": "2"}
LOOKUP = {**BUCKETS, "changelog-producer": "lookup"}
FULL = {**BUCKETS, "changelog-producer": "full-compaction", "full-compaction.delta-commits": "1"}
SEQUENCES = {"fields.g.sequence-group": "a", "fields.h.sequence-group": "b"}
AGGREGATES = {
    "fields.n.aggregate-function": "sum", "fields.v.aggregate-function": "max", "fields.v.ignore-retract": "true",
}  # fmt: skip
KINDS = {
    "append": Kind({}, kinds=("+I",), is_keyed=False),
    "append with buckets": Kind({**BUCKETS, "bucket-key": "k"}, kinds=("+I",), is_keyed=False),
    "no changelog": Kind(BUCKETS, logs_updates=False),
    "input": Kind({**BUCKETS, "changelog-producer": "input"}, logs_updates=False),
    "lookup": Kind(LOOKUP),
    "deletion vectors": Kind({**LOOKUP, "deletion-vectors.enabled": "true"}),
    "full-compaction": Kind(FULL),
    "partial-update": Kind(
        {**LOOKUP, "merge-engine": "partial-update", **SEQUENCES},
        columns={"g": "INT", "a": "STRING", "h": "INT", "b": "STRING"},
    ),
    "aggregation": Kind({**LOOKUP, "merge-engine": "aggregation", **AGGREGATES}),
    "first-row": Kind({**LOOKUP, "merge-engine": "first-row"}, kinds=("+I",)),
    "dynamic buckets": Kind({**LOOKUP, "bucket": "-1", "dynamic-bucket.target-row-num": "5"}),
}


class FlinkTable:
    """A table `db.t`, and rows of a seeded source for it.

    Attributes:
        feed: What a job of `write` writes.
        given: All changes that were drawn.
    """

    def __init__(self, flink: LiveFlink, warehouse: Path, kind: Kind, **options: str) -> None:
        self.kind, self.catalog, self._warehouse = kind, FlinkCatalog(flink, warehouse), warehouse
        self.columns = {"k": "BIGINT", **kind.columns}
        self.create("t", options)
        self.feed = Feed(flink, self.columns)
        self.given: list[tuple[str, dict[str, Any]]] = []
        self._random = seeded(f"flink {kind}")

    def create(self, name: str, options: Mapping[str, str]) -> None:
        """Create a table of the kind."""
        columns = [f"`{column}` {type_name}" for column, type_name in self.columns.items()]
        if self.kind.is_keyed:
            columns.append("PRIMARY KEY (k) NOT ENFORCED")
        given = ", ".join(f"'{key}'='{value}'" for key, value in {**self.kind.options, **options}.items())
        self.catalog.sql(f"CREATE TABLE {name} ({', '.join(columns)})" + (f" WITH ({given})" if given else ""))

    def handle(self, name: str = "t") -> Any:
        return CatalogFactory.create({"warehouse": str(self._warehouse)}).get_table(f"db.{name}")

    def latest(self) -> int:
        snapshot = self.handle().snapshot_manager().get_latest_snapshot()
        return 0 if snapshot is None else int(snapshot.id)

    def wait_for_consumers(self, followers: Followers, *names: str) -> None:
        """What follows the table keeps its snapshots from now on. What has not begun would begin after an expiry."""
        until(lambda: {each.consumer_id for each in list_consumers(self.handle())} >= {*followers.consumers, *names})

    @contextmanager
    def followed(self, **settings: Any) -> Any:
        """What follows it within the block."""
        keys = ["k"] if self.kind.is_keyed else []
        with Followers(self.handle, self._warehouse, keys, **settings) as found:
            yield found

    def write(self, savepoint: str | None = None) -> Job:
        """Start a job that writes the feed."""
        return self.catalog.run(f"INSERT INTO t SELECT * FROM {self.feed.name}", feeds=[self.feed], savepoint=savepoint)

    def push(self) -> None:
        """Feed some changes, and wait until they begin to be committed."""
        before = self.latest()
        self.feed.push(*self.changes())
        until(lambda: self.latest() > before)

    def changes(self) -> list[Change]:
        """Draw some."""
        found = [(self._random.choice(self.kind.kinds), *map(self._value, self.columns)) for _ in range(CHANGES)]
        self.given += self.named(found)
        return found

    def _value(self, column: str) -> Any:
        if column == "k":
            return self._random.randrange(KEYS)
        if self._random.random() < 0.15:
            return None
        number = self._random.randrange(50)
        return number if self.columns[column] in ("INT", "BIGINT") else f"v{number}"

    def arrow(self, changes: Sequence[Change]) -> pa.Table:
        """Changes for a writer of ours. A table without a key takes rows."""
        schema = pa.schema([("_row_kind", pa.string()), *((name, ARROW[kind]) for name, kind in self.columns.items())])
        columns = [
            pa.array(column, kind) for column, kind in zip(zip(*changes, strict=True), schema.types, strict=True)
        ]
        found = pa.table(columns, schema=schema)
        return found if self.kind.is_keyed else found.drop_columns(["_row_kind"])

    def follow(self, options: str = FROM_FIRST) -> Job:
        """Flink's own stream of it."""
        return self.catalog.follow(f"SELECT * FROM t /*+ OPTIONS({options}) */")

    def check(self, followers: Followers, flinks: Job) -> None:
        """What ours have read is what Flink reads, as a state and as a stream."""
        self.check_state(followers)
        if self.kind.is_keyed and self.kind.logs_updates:
            followers.check_updates()
        expected = followers.changes["stream"]
        until(lambda: len(flinks.changes()) >= len(expected))
        assert followers.histories(self.named(flinks.changes())) == followers.histories(expected)

    def check_state(self, followers: Followers) -> None:
        rows = sorted_rows(followers.finish())
        assert rows == sorted_rows(row for _, row in self.named(self.catalog.sql("SELECT * FROM t")))
        if self.given and "merge-engine" not in self.kind.options:
            assert rows == sorted_rows(followers.state(self.given))

    def named(self, changes: Sequence[Change]) -> list[tuple[str, dict[str, Any]]]:
        """Row kinds and rows by column name."""
        return [(kind, without_nulls(dict(zip(self.columns, row, strict=True)))) for kind, *row in changes]


@pytest.fixture
def lake(flink: LiveFlink, tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "warehouse"
    flink.call("cancel all")


@pytest.mark.parametrize("name", KINDS)
def test_a_table_is_followed_through_a_savepoint_and_a_failure(flink: LiveFlink, lake: Path, name: str) -> None:
    table = FlinkTable(flink, lake, KINDS[name])
    flinks = table.follow()
    with table.followed() as followers:
        job = table.write()
        for number in range(ROUNDS):
            table.push()
            followers.check_running()
            if number == 1:
                job = table.write(job.stop())
            elif number == 3:
                table.feed.fail()
        table.feed.end()
        job.wait()
        table.check(followers, flinks)


def test_two_jobs_generate_rows(flink: LiveFlink, lake: Path) -> None:
    generated = (
        "CREATE TEMPORARY TABLE generated (k BIGINT, v STRING, n INT) WITH ('connector'='datagen', "
        "'rows-per-second'='2000', 'number-of-rows'='6000', "
        "'fields.k.min'='0', 'fields.k.max'='300', 'fields.v.length'='3')"
    )
    keyed = FlinkTable(flink, lake / "keyed", KINDS["lookup"])
    append = FlinkTable(flink, lake / "append", KINDS["append"])
    tables, flinks = (keyed, append), [each.follow() for each in (keyed, append)]
    with keyed.followed() as first, append.followed() as second:
        jobs = [each.catalog.run(generated, "INSERT INTO t SELECT * FROM generated") for each in tables]
        for job in jobs:
            job.wait()
        for each, followers, stream in zip(tables, (first, second), flinks, strict=True):
            each.check(followers, stream)
        assert len(second.changes["stream"]) == 6000


@pytest.mark.parametrize("name", ["lookup", "input"])
def test_tags_and_expiry_while_all_follow(flink: LiveFlink, lake: Path, name: str) -> None:
    tags = {"tag.automatic-creation": "process-time", "tag.creation-period": "hourly"}
    table = FlinkTable(flink, lake, KINDS[name], **CONSUMERS, **tags)
    flinks = table.follow(f"{FROM_FIRST}, 'consumer-id'='flink'")
    with table.followed() as followers:
        job = table.write()
        table.push()
        table.wait_for_consumers(followers, "flink")
        savepoint = job.stop()
        table.catalog.sql("ALTER TABLE t SET ('snapshot.num-retained.min'='1', 'snapshot.num-retained.max'='2')")
        job = table.write(savepoint)
        for number in range(ROUNDS):
            table.push()
            if number == 2:
                table.catalog.sql("CALL sys.create_tag('db.t', 'mid')")
        table.feed.end()
        job.wait()
        table.check(followers, flinks)
    table.catalog.sql("CALL sys.clear_consumers('db.t')")
    table.catalog.sql("CALL sys.expire_snapshots(`table` => 'db.t', retain_max => 1)")
    earliest = table.handle().snapshot_manager().try_get_earliest_snapshot()
    assert earliest is not None and earliest.id == table.latest()
    tagged = list_tags(table.handle())
    assert len(tagged) == 2, "one of the hour, one by hand"
    if name == "lookup":
        return  # a stream's first plan has no rows that were not compacted, a batch of Flink has
    for tag in tagged:
        start = stream_read_builder(table.handle()).with_start(tag=tag.name, full=True)
        with start.with_end(snapshot_id=tag.snapshot.id).open_sync() as stream:
            ours = [row for batch in stream for _, row in changes_of(batch)]
        theirs = table.named(table.catalog.sql(f"SELECT * FROM t /*+ OPTIONS('scan.tag-name'='{tag.name}') */"))
        assert sorted_rows(ours) == sorted_rows(row for _, row in theirs), tag


@pytest.mark.parametrize("name", ["lookup", "full-compaction", "deletion vectors", "append"])
def test_a_job_compacts_what_another_one_writes(flink: LiveFlink, lake: Path, name: str) -> None:
    table = FlinkTable(flink, lake, KINDS[name], **{"write-only": "true"})
    flinks = table.follow()
    with table.followed() as followers:
        job = table.write()
        table.push()
        compaction = table.catalog.compact("t")
        for _ in range(ROUNDS):
            table.push()
        table.feed.end()
        job.wait()
        # The compactions make the changes.
        expected = sorted_rows(followers.state(table.given))
        until(lambda: sorted_rows(followers.state(followers.changes["stream"])) == expected)
        compaction.stop()
        table.check(followers, flinks)


def test_columns_change_between_jobs(flink: LiveFlink, lake: Path) -> None:
    table = FlinkTable(flink, lake, KINDS["lookup"])
    with table.followed(renamed={"v": "w"}) as followers:
        job = table.write()
        table.push()
        table.push()
        job.stop()
        for change in ("ADD (more STRING)", "MODIFY (n BIGINT)", "RENAME v TO w"):
            table.catalog.sql(f"ALTER TABLE t {change}")
        table.columns = {"k": "BIGINT", "w": "STRING", "n": "BIGINT", "more": "STRING"}
        table.feed = Feed(flink, table.columns)
        job = table.write()
        table.push()
        table.catalog.sql("ALTER TABLE t SET ('snapshot.num-retained.max'='100')")
        table.push()
        table.feed.end()
        job.wait()
        table.given = [(kind, {"w" if name == "v" else name: row[name] for name in row}) for kind, row in table.given]
        table.check_state(followers)
        followers.check_updates()


@pytest.mark.parametrize("name", KINDS)
def test_flink_follows_what_ours_write_and_compact(flink: LiveFlink, lake: Path, name: str) -> None:
    kind = KINDS[name]
    table = FlinkTable(flink, lake, kind, **CONSUMERS)
    table.create("copied", {"changelog-producer": "none", "merge-engine": "deduplicate"} if kind.is_keyed else {})
    flinks = table.follow(f"{FROM_FIRST}, 'consumer-id'='flink'")
    table.catalog.run(f"INSERT INTO copied SELECT * FROM t /*+ OPTIONS({FROM_FIRST}, 'consumer-id'='flink-copy') */")
    with table.followed() as followers:
        write = stream_write_builder(table.handle()).with_commit_user("ours")
        with write.open_sync() as writer, Compactor(table.handle(), interval=0.2):
            for number in range(3 * ROUNDS):
                writer.write(table.arrow(table.changes()))
                writer.commit()
                followers.check_running()
                if number % 4 == 3:
                    table.wait_for_consumers(followers, "flink", "flink-copy")
                    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=3))
        compact(table.handle(), full=True)
        table.check(followers, flinks)

    def read(name: str) -> list[str]:
        return sorted_rows(row for _, row in table.named(table.catalog.sql(f"SELECT * FROM {name}")))

    expected = read("t")
    until(lambda: read("copied") == expected)
