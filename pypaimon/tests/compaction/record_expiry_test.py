"""Records go with the compaction after their time (`record-level.expire-time`), and only they."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pypaimon import Schema

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder, table_files
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.record_expiry import RecordExpiry
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.internals import AtomicType
from pypaimon.streaming.paimon.write_internals import SchemaChange
from support.samples import SOAK
from support.tables.handles import catalog_with_database, create_table, read_with, write_with

pytestmark = [pytest.mark.slow, pytest.mark.soak]

EXAMPLES = 80 if SOAK else 2
COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("t", pa.int32()), ("v", pa.int64())])
KINDED = COLUMNS.append(pa.field("_row_kind", pa.string()))
EXPIRY = {"bucket": "1", "record-level.expire-time": "10 s", "record-level.time-field": "t"}
Row = tuple[int, int | None, int, bool]


class Aging:
    """A table of which each record stays for 10 seconds, and what must be in it."""

    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.catalog = catalog_with_database(directory, "d")
        schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["id"], options={**EXPIRY, **options})
        self.catalog.create_table("d.t", schema, False)
        self.now = 100
        self.model: dict[int, Row] = {}
        self.waiting: list[Row] = []

    @property
    def table(self) -> Any:
        return self.catalog.get_table("d.t")

    def write(self, *rows: Row) -> None:
        found = [{"id": key, "t": t, "v": v, "_row_kind": "-D" if gone else "+I"} for key, t, v, gone in rows]
        write_with(stream_write_builder(self.table).with_commit_user("writer"), pa.Table.from_pylist(found, KINDED))
        self.waiting += {row[0]: row for row in rows}.values()

    def compact(self, *, full: bool = False) -> int:
        """The number of files that went."""
        report = self.compaction(full=full).run()
        stay = [row for row in self.waiting if not self.expired(row)]
        self.model |= {row[0]: row for row in stay}
        self.waiting = []
        return report.before.files

    def compaction(self, *, full: bool) -> Compaction:
        return Compaction(PaimonTable(self.table), full=full, now=lambda: datetime.fromtimestamp(self.now + 0.9))

    def expired(self, row: Row) -> bool:
        return row[1] is not None and self.now > row[1] + 10

    def rows(self) -> list[Row]:
        with stream_read_builder(self.table).with_start("latest-full").with_end(latest=True).open_sync() as stream:
            return sorted((row["id"], row["t"], row["v"], False) for batch in stream for row in batch.data.to_pylist())

    def check(self, *, full: bool) -> None:
        """No key has two rows; what has expired may be there until all is compacted."""
        expected = {row for row in self.model.values() if not row[3]}
        found = self.rows()
        assert len({row[0] for row in found}) == len(found)
        assert set(found) <= expected
        gone = expected - set(found)
        assert all(self.expired(row) for row in gone)
        if full:
            assert not any(self.expired(row) for row in found)
        for row in gone:
            del self.model[row[0]]


KINDS: list[dict[str, str]] = [
    {},
    {"changelog-producer": "full-compaction"},
    {"changelog-producer": "lookup"},
    {"deletion-vectors.enabled": "true"},
    {"deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
]
ROWS = st.lists(
    st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(-15, 5)), st.integers(0, 9), st.booleans()),
    min_size=1,
    max_size=9,
)


@settings(max_examples=EXAMPLES, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(st.tuples(ROWS, st.integers(0, 9), st.booleans()), min_size=2, max_size=8),
    options=st.sampled_from(KINDS),
    small=st.sampled_from(["1 b", "128 mb"]),
)
def test_random_lives(steps: list[Any], options: dict[str, str], small: str) -> None:
    # Elsewhere what has expired by then depends on which files were merged before.
    only_full = options in KINDS[:2]
    with TemporaryDirectory() as directory:
        aging = Aging(Path(directory), {**options, "target-file-size": small})
        for rows, passed, full in steps:
            aging.write(*((key, t if t is None else aging.now + t, v, gone) for key, t, v, gone in rows))
            aging.now += passed
            aging.compact(full=full or only_full)
            aging.check(full=full or only_full)
        aging.compact(full=True)
        aging.check(full=True)
        assert not aging.compact(full=True)


@pytest.mark.parametrize(
    ("kind", "times", "gone"),
    [
        (pa.int32(), [89, 90, None], [True, False, False]),
        (pa.int64(), [89, 90, 10**12 - 1, 10**12], [True, False, False, False]),
        (pa.timestamp("s"), [89, 90, None], [True, False, False]),
        (pa.timestamp("ms", "UTC"), [89_999, 90_000], [True, False]),
        (pa.timestamp("us"), [89_999_999, 90_000_000], [True, False]),
        (pa.timestamp("ns"), [89_999_999_999, 90_000_000_000], [True, False]),
    ],
)
def test_a_record_goes_once_more_than_its_time_has_passed(
    tmp_path: Path, kind: pa.DataType, times: list[int | None], gone: list[bool]
) -> None:
    now = datetime.fromtimestamp(100, timezone.utc)
    assert gone_of(tmp_path, kind, times, now) == gone


@pytest.mark.parametrize(
    ("kind", "times", "now", "gone"),
    [
        (pa.int64(), [10**12, 10**12 + 1000, 999_999_999], 1_000_000_011, [True, False, True]),
        # Java cuts to milliseconds downwards, and to seconds towards 1970.
        (pa.timestamp("us"), [-1_999_000, -1_999_001, -2_000_000], 9, [False, True, True]),
    ],
)
def test_units_are_those_of_java(
    tmp_path: Path, kind: pa.DataType, times: list[int | None], now: int, gone: list[bool]
) -> None:
    assert gone_of(tmp_path, kind, times, datetime(1970, 1, 1) + timedelta(seconds=now)) == gone


def gone_of(directory: Path, kind: pa.DataType, times: list[int | None], now: datetime) -> list[bool]:
    catalog = catalog_with_database(directory, "d")
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("t", kind)])
    schema = Schema.from_pyarrow_schema(columns, primary_keys=["id"], options=EXPIRY)
    catalog.create_table("d.t", schema, False)
    found = RecordExpiry.of(PaimonTable(catalog.get_table("d.t")))
    assert found is not None
    batch = pa.record_batch({"id": pa.array(range(len(times)), pa.int64()), "t": pa.array(times, kind)})
    kept = [key for each in found.at(now).dropped([batch]) for key in each["id"].to_pylist()]
    return [key not in kept for key in range(len(times))]


def test_a_file_alone_above_goes_by_its_statistics(tmp_path: Path) -> None:
    aging = Aging(tmp_path, {"target-file-size": "1 b"})
    aging.write((1, 95, 1, False), (2, 98, 2, False))
    aging.compact(full=True)
    again = aging.compaction(full=True)
    assert not again.run().compacted
    aging.now = 105
    assert not again.run().compacted
    assert not aging.compact(full=True)
    aging.now = 106
    assert not compact(aging.table, dry_run=True).compacted
    assert again.run().before.files == 1, "nothing but the time has changed since it looked last"
    assert aging.rows() == [(2, 98, 2, False)]
    aging.now = 200
    assert again.run().after.files == 0
    assert aging.rows() == []


def test_a_column_that_has_got_another_name_and_type_is_found_in_older_statistics(tmp_path: Path) -> None:
    aging = Aging(tmp_path, {})
    aging.write((1, 95, 1, False), (2, 98, 2, False))
    aging.compact(full=True)
    changes = [
        SchemaChange.drop_column("v"),
        SchemaChange.rename_column("t", "at"),
        SchemaChange.update_column_type("at", AtomicType("BIGINT")),
        SchemaChange.set_option("record-level.time-field", "at"),
    ]
    for change in changes:
        aging.catalog.alter_table("d.t", [change], False)
    assert not aging.compact(full=True)
    aging.now = 106
    assert aging.compact(full=True) == 1
    with stream_read_builder(aging.table).with_start("latest-full").with_end(latest=True).open_sync() as stream:
        assert [row["id"] for batch in stream for row in batch.data.to_pylist()] == [2]


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_a_file_that_moves_keeps_its_records(tmp_path: Path, vectors: str) -> None:
    """Without statistics nobody knows that it holds one, which is the row of its key then, and told as such."""
    options = {"deletion-vectors.enabled": vectors, "target-file-size": "1 b", "changelog-producer": "lookup"}
    aging = Aging(tmp_path, {**options, "metadata.stats-mode": "none"})
    aging.write(*((key, 100, key, False) for key in range(30)))
    aging.compact(full=True)
    aging.write((7, 1, 70, False))
    aging.compact()
    assert [row for row in aging.rows() if row[0] == 7] == [(7, 1, 70, False)]
    changes = read_with(stream_read_builder(aging.table).with_start("earliest").with_end(latest=True))
    assert [(row["_row_kind"], row["v"]) for row in changes if row["id"] == 7] == [("+I", 7), ("-U", 7), ("+U", 70)]


@pytest.mark.parametrize(
    ("field", "named"),
    [
        ("nowhere", "not a column"),
        ("v", "v.*BIGINT or a timestamp"),
        ("several", "ARRAY.*BIGINT or a timestamp"),
        (None, "' is not set"),
    ],
)
def test_a_time_field_that_holds_no_time_is_refused(tmp_path: Path, field: str | None, named: str) -> None:
    catalog = catalog_with_database(tmp_path, "d")
    columns = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), ("several", pa.list_(pa.int64()))]
    )
    schema = Schema.from_pyarrow_schema(columns, primary_keys=["id"], options={"bucket": "1"})
    catalog.create_table("d.t", schema, False)
    options = {"record-level.expire-time": "1 h", **({} if field is None else {"record-level.time-field": field})}
    table = catalog.get_table("d.t").copy(options)
    with pytest.raises(UnsupportedTableError, match=named):
        compact(table)


def test_tables_without_a_key_keep_their_rows(tmp_path: Path) -> None:
    """As in Java, where the option means nothing to them."""
    catalog = catalog_with_database(tmp_path, "d")
    table = create_table(catalog, "t", COLUMNS, options={**EXPIRY, "bucket": "-1"}, database="d")
    with stream_write_builder(table).with_commit_user("writer").open_sync() as writer:
        for _ in range(2):
            writer.write(pa.Table.from_pylist([{"id": 1, "t": 1, "v": 1}], COLUMNS))
            writer.commit()
    assert compact(table, full=True).after.rows == 2
    assert table_files(table).not_compacted is None
