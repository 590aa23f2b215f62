"""Live Java reads, filters, continues and compacts what is written here as if Java had written it."""

from __future__ import annotations

import json
import math
import operator
import random
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import AtomicType

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.model.system_columns import ROW_KIND, VALUE_KIND
from pypaimon.streaming.writing.routing import BucketKeys
from support.corpus.values import column_values
from support.java.live import LiveJava
from support.java.values import value
from support.process_state import in_zone
from support.samples import SOAK, sample_seed, seeded
from support.tables.handles import write_with
from support.tables.sample_values import EDGES, ArrowRows, fields, fill
from support.tables.written_rows import KINDS, commit, recount

pytestmark = [pytest.mark.java, pytest.mark.soak]

ATOMIC = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 10)",
    "VARCHAR(10)", "STRING", "BYTES", "DATE", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)",
    "TIMESTAMP(3) WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
]  # fmt: skip
# Java 1.4 fails on those in Avro, and newer versions do not.
NUMBERS: dict[str, Any] = {"type": "ARRAY", "element": {"type": "MULTISET", "element": "INT"}}
FINE = ["TIMESTAMP(9)", "TIMESTAMP(9) WITH LOCAL TIME ZONE", {"type": "ARRAY", "element": "TIMESTAMP(9)"}]
ONLY_IN: dict[str, list[Any]] = {
    "orc": [*FINE, NUMBERS],
    "parquet": [*FINE, "VARIANT", {"type": "ARRAY", "element": "VARIANT"}, NUMBERS],
    "avro": [{"type": "VECTOR", "element": "FLOAT", "length": 3}],
}
ROW_TYPE = {
    "type": "ROW",
    "fields": [{"id": 100, "name": "a", "type": "INT"}, {"id": 101, "name": "t", "type": "TIMESTAMP(3)"}],
}
NESTED = [
    {"type": "ARRAY", "element": "STRING"},
    {"type": "ARRAY", "element": "TIMESTAMP(6)"},
    {"type": "ARRAY", "element": "TIME(3)"},
    {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"},
    {"type": "MAP", "key": "INT NOT NULL", "value": "DATE"},
    ROW_TYPE,
    {"type": "ARRAY", "element": ROW_TYPE},
    {"type": "MULTISET", "element": "STRING"},
]
TABLES: dict[str, dict[str, Any]] = {
    "append": {"primary_keys": [], "options": {}},
    "buckets": {"primary_keys": [], "options": {"bucket": "2", "bucket-key": "k"}},
    "remainders": {
        "primary_keys": ["p", "k"],
        "options": {"bucket": "3", "bucket-function.type": "mod", "bucket-key": "k"},
    },
    "keyed": {"primary_keys": ["p", "k"], "options": {"bucket": "2", "changelog-producer": "input"}},
}
ROWS = 40
UNFILTERED = ("DECIMAL(10, 2)",) if pa.__version__.startswith("16.") else ()
"""Types on which Java's filters fail, as docs/reference.md says of the oldest pyarrow."""
OPERATORS = ("=", "<", "<=", ">", ">=")
FILTERS = 10 if SOAK else 1
"""How many filters are tried on each column."""
CASES = [(kind, format_) for kind in TABLES for format_ in ("parquet", "orc", "avro")]
DRAWN = CASES if SOAK else random.Random(sample_seed()).sample(CASES, 1)
"""Kinds of tables and formats."""


@pytest.mark.parametrize(("kind", "format_"), DRAWN)
def test_java_finds_no_difference(java: LiveJava, tmp_path: Path, kind: str, format_: str) -> None:
    types: list[Any] = ["INT", "BIGINT", *ATOMIC, *NESTED]
    types[-1:-1] = ONLY_IN[format_]
    fields = [
        [name, type_] for name, type_ in zip(["p", "k", *(f"c{i}" for i in range(len(types)))], types, strict=False)
    ]
    settings = TABLES[kind]
    table = {
        "fields": fields, "partition_keys": ["p"], **settings,
        "options": {"file.format": format_, "write-only": "true", **settings["options"]},
    }  # fmt: skip
    source = random.Random(f"{kind} {format_}")
    kinds = KINDS if settings["primary_keys"] else KINDS[:1]
    # Values of 2 partitions and few keys, so that keys meet again.
    rows = [
        [
            source.choice(kinds),
            number % 2,
            source.randrange(-5, ROWS),
            *(value(type_, source, True) for _, type_ in fields[2:]),
        ]
        for number in range(ROWS)
    ]
    if format_ == "orc":
        # What pyarrow writes wrong is refused. Java's own statistics lose rows next to NaN.
        rows = json.loads(re.sub(r"(1969-[\d:T-]+\.\d{3})\d+", r"\1", json.dumps(rows).replace('"NaN"', "2.5")))
    later = [["+I", 0, 1000 + number, *rows[number][3:]] for number in range(5)]
    by_java = java_answers(java, tmp_path / "java", table, fields, rows, later, None)
    by_us = java_answers(java, tmp_path / "ours", table, fields, rows, later, tmp_path / "java")
    for (what, expected), (_, found) in zip(by_java, by_us, strict=True):
        assert found == expected, what


KEYS = [
    "BOOLEAN", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(38, 10)", "STRING", "BYTES", "DATE", "TIME(3)",
    "TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP(9)", "TIMESTAMP(6) WITH LOCAL TIME ZONE",
]  # fmt: skip
ODD_KEYS = {
    # The fewest bytes of these numbers are fewer than Python says.
    "DECIMAL(38, 10)": ["-0.0000000128", "0.0000000128", "-0.0000032768", "9999999999999999999999999999.9999999999"]
}


def test_keys_of_any_type_are_in_javas_buckets(java: LiveJava, tmp_path: Path) -> None:
    source = random.Random(sample_seed())
    for number, type_ in enumerate(KEYS):
        table = {"fields": [["k", type_], ["x", "STRING"]], "partition_keys": [], "primary_keys": []}
        options = {"bucket": "11", "bucket-key": "k,x", "write-only": "true"}
        java.call("create", warehouse=str(tmp_path / str(number)), **table, options=options)
        keys = [None, *ODD_KEYS.get(type_, []), *(value(type_, source, True) for _ in range(12))]
        java.call("write", flushes=[[["+I", key, source.choice([None, "x", "more than seven"])] for key in keys]])
        made = CatalogFactory.create({"warehouse": str(tmp_path / str(number))}).get_table("d.t")
        bucket_keys = BucketKeys.of(PaimonTable(made))
        assert bucket_keys is not None
        builder = stream_read_builder(made)
        count = 0
        with builder.new_streaming_scan() as scan:
            for split in scan.plan().splits():
                rows = builder.new_read().to_arrow([split]).combine_chunks()
                found = bucket_keys.buckets_of([rows[name].combine_chunks() for name in ("k", "x")])
                assert set(found.tolist()) == {split.bucket}, f"{type_}: {rows.to_pylist()}"
                count += rows.num_rows
        assert count == len(keys)


@pytest.mark.parametrize("format_", ["parquet", "orc", "avro"])
def test_java_reads_rows_of_any_layout(java: LiveJava, tmp_path: Path, format_: str) -> None:
    source = seeded(f"layouts {format_}")
    drawn = ArrowRows(source)
    columns = [drawn.field(1 + number % 4, f"c{number}").with_nullable(True) for number in range(12)]
    schema = pa.schema([pa.field("k", pa.int32()), *columns])
    types = [[field.name, field.type.to_dict()] for field in Schema.from_pyarrow_schema(schema).fields]
    options = {"file.format": format_, "write-only": "true"}
    java.call("create", warehouse=str(tmp_path), fields=types, partition_keys=[], primary_keys=[], options=options)
    rows = [[drawn.value(field) for field in columns] for _ in range(12)]
    with stream_write_builder(
        CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    ).open_sync() as writer:
        for first in (0, 6):
            part = rows[first : first + 6]
            arrays = [drawn.laid_out([row[at] for row in part], field) for at, field in enumerate(columns)]
            writer.write(pa.table([pa.array(range(first, first + 6), pa.int32()), *arrays], names=schema.names))
            writer.commit()
    given = [column_values(pa.array([row[at] for row in rows], field.type)) for at, field in enumerate(columns)]
    expected = [str(["+I", key, *values]) for key, values in enumerate(zip(*given, strict=True))]
    assert read(java, "latest-full") == sorted(expected)


@pytest.mark.parametrize("threshold", ["0 b", "1 mb"])
def test_java_reads_no_file_whose_index_has_no_match(java: LiveJava, tmp_path: Path, threshold: str) -> None:
    options = {
        "metadata.stats-mode": "none",
        "file-index.in-manifest-threshold": threshold,
        "file-index.bloom-filter.columns": "a",
        "file-index.bloom-filter.a.items": "100",
        "file-index.bitmap.columns": "b,c",
    }
    fields = [["k", "INT"], ["a", "STRING"], ["b", "STRING"], ["c", "BIGINT"]]
    java.call("create", warehouse=str(tmp_path), fields=fields, partition_keys=[], primary_keys=[], options=options)
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    schema = pa.schema([("k", pa.int32()), ("a", pa.string()), ("b", pa.string()), ("c", pa.int64())])
    for number in range(3):
        texts = pa.array([f"text {number}, which is longer than 32 bytes", None])
        columns = [pa.array([number, -1], pa.int32()), texts, texts, pa.array([number, number], pa.int64())]
        (message,) = commit(table, number, pa.RecordBatch.from_arrays(columns, schema=schema))
        if number != 1:
            Path(message.new_files[0].file_path).unlink()
    text = "text 1, which is longer than 32 bytes"
    for column, wanted, count in (("a", text, 1), ("b", text, 1), ("c", 1, 2)):
        found = read(java, "latest-full", filter=[column, "=", wanted], execute_filter=True)
        assert len(found) == count, found


LOCAL = "TIMESTAMP(6) WITH LOCAL TIME ZONE"
MOMENTS = [
    *("1899-12-31T10:00:00", "1969-12-31T20:00:00", "1970-01-02T09:00:00.500000", "1988-07-01T12:00:00"),
    *("2024-03-10T01:30:00", "2024-03-10T03:30:00", "2024-07-01T20:00:00.123456", "2024-11-03T01:30:00"),
]
SKIPPED = "2024-03-10T02:30:00"
"""By clocks of New York."""


def zoned_table(java: LiveJava, directory: Path, zone: str, kinds: list[str], **options: str) -> Any:
    """An ORC table that Java has made in a zone."""
    fields = [["k", "INT"], *([f"c{number}", kind] for number, kind in enumerate(kinds))]
    options = {"bucket": "-1", "file.format": "orc", **options}
    keys: dict[str, Any] = {"partition_keys": [], "primary_keys": []}
    java.call("create", warehouse=str(directory), fields=fields, **keys, options=options, zone=zone)
    return CatalogFactory.create({"warehouse": str(directory)}).get_table("d.t")


def moments_of(table: Any, moments: list[str], first: int = 0) -> pa.Table:
    """Rows with a moment in each column but the first one."""
    columns = {"k": pa.array(range(first, first + len(moments)), pa.int32())}
    times = pa.array([datetime.fromisoformat(each) for each in moments], pa.timestamp("us"))
    for field in table.fields[1:]:
        columns[field.name] = times.cast(arrow_type(field.type))
    return pa.table(columns)


def write_for(table: Any, rows: pa.Table, zone: str | None) -> None:
    builder = stream_write_builder(table)
    if zone is not None:
        builder.with_time_zone(zone)
    write_with(builder, rows)


def found_here(table: Any) -> pa.Table:
    builder = stream_read_builder(table)
    with builder.new_streaming_scan() as scan:
        return builder.new_read().to_arrow(scan.plan().splits()).sort_by("k")


def shown(moments: list[str], kinds: list[str], first: int = 0) -> list[str]:
    """Rows as Java gives them."""
    texts = [each if "." in each else f"{each}.000000" for each in moments]
    ends = ["Z" if kind == LOCAL else "" for kind in kinds]
    return sorted(str(["+I", first + number, *(text + end for end in ends)]) for number, text in enumerate(texts))


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
@pytest.mark.parametrize("kinds", [[LOCAL], [LOCAL, "TIMESTAMP(6)"]])
def test_java_reads_orc_files_that_are_written_for_its_zone(
    java: LiveJava, tmp_path: Path, zone: str, kinds: list[str]
) -> None:
    """By filters too; and ours reads them wherever it is, since they name their zone."""
    table = zoned_table(java, tmp_path, zone, kinds)
    rows = moments_of(table, MOMENTS)
    write_for(table, rows, zone)
    assert read(java, "latest-full") == shown(MOMENTS, kinds)
    for number, moment in enumerate(MOMENTS):
        for column in range(len(kinds)):
            equal = read(java, "latest-full", filter=[f"c{column}", "=", moment], execute_filter=True)
            assert equal == [shown(MOMENTS[number:][:1], kinds, number)[0]]
    for process in ("UTC", "Asia/Tokyo"):
        with in_zone(process):
            assert found_here(table).equals(rows)


def test_what_clocks_of_a_zone_skip_is_not_written_for_it(java: LiveJava, tmp_path: Path) -> None:
    table = zoned_table(java, tmp_path, "America/New_York", [LOCAL])
    with pytest.raises(UnsupportedTableError, match=r"Column 'c0' holds 2024-03-10 02:30:00.* America/New_York .*skip"):
        write_for(table, moments_of(table, [SKIPPED]), "America/New_York")
    write_for(table, moments_of(table, [SKIPPED]), "Asia/Shanghai")
    assert found_here(table).equals(moments_of(table, [SKIPPED]))


def test_without_javas_legacy_type_no_zone_counts(java: LiveJava, tmp_path: Path) -> None:
    table = zoned_table(java, tmp_path, "Asia/Shanghai", [LOCAL], **{"orc.timestamp-ltz.legacy.type": "false"})
    write_for(table, moments_of(table, MOMENTS), "America/New_York")
    java.call("write", flushes=[[["+I", 100, SKIPPED]]])
    assert read(java, "latest-full") == sorted([*shown(MOMENTS, [LOCAL]), *shown([SKIPPED], [LOCAL], 100)])
    later = moments_of(table, [SKIPPED], 100)
    assert found_here(table).equals(pa.concat_tables([moments_of(table, MOMENTS), later]).combine_chunks())


def test_a_compaction_carries_moments_of_files_of_several_zones(java: LiveJava, tmp_path: Path) -> None:
    """Into one that Java reads in its zone, which names its zone, or is the only one that the table names."""
    zone = "Asia/Shanghai"
    table = zoned_table(java, tmp_path, "America/New_York", [LOCAL])
    week = [f"2024-06-{day}T20:00:00" for day in range(10, 17)]
    java.call("write", flushes=[[["+I", 100 + number, each] for number, each in enumerate(week)]])
    write_for(table, moments_of(table, MOMENTS), "Europe/London")
    write_for(table, moments_of(table, MOMENTS, 50), None)
    java.call("alter", changes=[["set", "time-zone", zone]])
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    parts = [moments_of(table, MOMENTS), moments_of(table, MOMENTS, 50), moments_of(table, week, 100)]
    rows = pa.concat_tables(parts).combine_chunks()
    assert found_here(table).equals(rows)
    assert compact(table, full=True).new_snapshot_ids
    assert found_here(table).equals(rows)
    java.call("zone", zone=zone)
    wanted = [*shown(MOMENTS, [LOCAL]), *shown(MOMENTS, [LOCAL], 50), *shown(week, [LOCAL], 100)]
    assert read(java, "latest-full") == sorted(wanted)


# What ORC's own library misreads in files of Java's writers too: docs/writing.md.
MISREAD = {"orc": ("FLOAT", "DOUBLE", "CHAR", "STRING", "DATE", "TIMESTAMP")}
ORC = {"file.format": "orc"}
INDEXED = {"file-index.in-manifest-threshold": "1 mb", "file-index.bitmap.columns": "c0"}


@pytest.mark.parametrize(("format_", "options"), [("parquet", {}), ("orc", {}), ("avro", INDEXED)])
def test_java_finds_every_row_by_bounds(java: LiveJava, tmp_path: Path, format_: str, options: dict[str, str]) -> None:
    types = [each for each in EDGES if not each.startswith(MISREAD.get(format_, ()))]
    columns = ",".join(f"c{number}" for number in range(len(types)))
    options = {key: columns if key.endswith(".columns") else each for key, each in options.items()}
    source = seeded(f"edges of {format_}")
    filters = [(types.index("BYTES"), "=", "fwE=")]
    for _ in range(60 if SOAK else 6):
        number = source.randrange(len(types))
        values = column_values(pa.array(EDGES[types[number]], arrow_type(AtomicType(types[number]))))
        # Java 1.4 compares bytes signed row by row too, by which other rows are less.
        sign = "=" if types[number].startswith(("BYTES", "BINARY")) else source.choice((*OPERATORS, "<>"))
        filters.append((number, sign, source.choice(values)))
    expected = found_by(
        java, tmp_path / "plain", types, {"file.format": "avro", "metadata.stats-mode": "none"}, filters
    )
    found = found_by(java, tmp_path / "bounds", types, {"file.format": format_, **options}, filters)
    for filter_, wanted, rows in zip(filters, expected, found, strict=True):
        assert rows == wanted, (types[filter_[0]], *filter_[1:])
    assert expected[0]


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_java_finds_every_row_next_to_nan_in_orc_files(java: LiveJava, tmp_path: Path, kind: str) -> None:
    source = seeded(f"NaN as {kind}")
    values = [-math.inf, -1.5, 1.5, 3.0, math.inf, math.nan]
    fields = [["k", "INT"], ["v", kind]]
    java.call("create", warehouse=str(tmp_path), fields=fields, partition_keys=[], primary_keys=[], options=ORC)
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    places = [source.randrange(len(values)) for _ in range(24)]
    with stream_write_builder(table).open_sync() as writer:
        for first in range(0, 24, 3):
            keys, floats = range(first, first + 3), [values[place] for place in places[first : first + 3]]
            writer.write(
                pa.table({"k": pa.array(keys, pa.int32()), "v": pa.array(floats, arrow_type(AtomicType(kind)))})
            )
            writer.commit()
    texts = column_values(pa.array(values, arrow_type(AtomicType(kind))))
    for literal, text in enumerate(texts):
        # NaN is the greatest number.
        for sign, is_found in (("=", operator.eq), ("<", operator.lt), (">=", operator.ge)):
            found = read(java, "latest-full", filter=["v", sign, text], execute_filter=True)
            wanted = [str(["+I", key, texts[at]]) for key, at in enumerate(places) if is_found(at, literal)]
            assert found == sorted(wanted), (sign, text)


def found_by(
    java: LiveJava, directory: Path, types: list[str], options: dict[str, str], filters: list[tuple[int, str, Any]]
) -> list[list[str]]:
    """What Java finds of a table of edges, written here, by each filter."""
    columns = [[each.name, each.type.to_dict()] for each in fields(types)]
    given = {"partition_keys": [], "primary_keys": [], "options": {"write-only": "true", **options}}
    java.call("create", warehouse=str(directory), fields=columns, **given)
    fill(CatalogFactory.create({"warehouse": str(directory)}).get_table("d.t"), types)
    return [
        read(java, "latest-full", filter=[f"c{number}", *rest], execute_filter=True, projection=[0, number + 1])
        for number, *rest in filters
    ]


def java_answers(
    java: LiveJava, directory: Path, table: dict[str, Any], fields: list[Any], rows: list[Any], later: list[Any],
    copied: Path | None,
) -> list[tuple[str, Any]]:  # fmt: skip
    """What Java reads of a table: as it is, by filters on each column, after more of Java's rows, after compaction.

    Args:
        copied: The warehouse of a table whose rows are written here; None: Java writes the rows.
    """
    java.call("create", warehouse=str(directory), **table)
    if copied is None:
        java.call("write", flushes=[rows])
    else:
        target = CatalogFactory.create({"warehouse": str(directory)}).get_table("d.t")
        for message in commit(target, 1, batch_of(copied, bool(table["primary_keys"]))):
            for file in (*message.new_files, *message.changelog_files):
                recount(target, file)
    source = random.Random(len(rows))
    answers: list[tuple[str, Any]] = [("changes", read(java)), ("state", read(java, "latest-full"))]
    for position, (name, type_) in enumerate(fields):
        if isinstance(type_, dict) or type_ in ("BYTES", "VARIANT", *UNFILTERED):
            continue
        literals = {str(row[position + 1]): row[position + 1] for row in rows[:6] if row[position + 1] is not None}
        filters = [
            [name, "is_null", None],
            *([name, each, literal] for literal in literals.values() for each in OPERATORS),
        ]
        for given in source.sample(filters, min(FILTERS, len(filters))):
            found = read(java, "latest-full", filter=given, execute_filter=True)
            answers.append((str(given), found))
    java.call("write", flushes=[later])
    answers.append(("more", read(java, "latest-full")))
    java.call("compact", full=True, options={"write-only": "false"})
    answers.append(("compacted", read(java, "latest-full")))
    return answers


def batch_of(warehouse: Path, keyed: bool) -> pa.RecordBatch:
    table = CatalogFactory.create({"warehouse": str(warehouse)}).get_table("d.t")
    options = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    builder = stream_read_builder(table.copy(options))
    with builder.new_streaming_scan() as scan:
        data = builder.new_read().to_arrow(scan.plan().splits())
    if keyed:
        kinds = pa.array([KINDS.index(kind) for kind in data[ROW_KIND].to_pylist()], pa.int8())
        data = data.drop_columns([ROW_KIND]).append_column(pa.field(VALUE_KIND, pa.int8(), False), kinds)
    (batch,) = data.combine_chunks().to_batches()
    return batch


def read(java: LiveJava, mode: str = "from-snapshot", **arguments: Any) -> list[str]:
    options = {"scan.mode": mode, **({"scan.snapshot-id": "1"} if mode == "from-snapshot" else {})}
    reply = java.call("read", options=options, **arguments)
    assert reply["end"] == "waiting", json.dumps(reply["end"])
    return sorted(str(row) for plan in reply["plans"] for split in plan["splits"] for row in split["rows"])
