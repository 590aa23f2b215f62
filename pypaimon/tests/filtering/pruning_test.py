"""Pruning never drops what a stream must deliver, and drops what cannot matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.write.row_key_extractor import FixedBucketRowKeyExtractor

from pypaimon.streaming.filtering.filters import mask, split_and
from pypaimon.streaming.filtering.pruning import Pruner, Scan
from pypaimon.streaming.metadata.manifest_tables import ENTRY_SCHEMA, MANIFEST_SCHEMA
from pypaimon.streaming.paimon.filter_internals import Predicate
from pypaimon.streaming.paimon.internals import GenericRow, GenericRowSerializer, PyarrowFieldParser, TableSchema
from support.samples import SOAK, examples

pytestmark = [pytest.mark.slow, pytest.mark.soak]

Row = dict[str, Any]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "k": st.integers(0, 9),
    "p": st.sampled_from(["a", "b", "a" * 20]),
    "i": st.none() | st.integers(-5, 5),
    "s": st.none() | st.sampled_from(["", "a", "ab", "abc", "b", "é", "x" * 20, "x" * 15 + "y" * 9, "\U0001f600" * 17]),
    "f": st.none() | st.sampled_from([float("nan"), float("inf"), -0.0, 0.0, 0.1, -1.5, 2.5, 3.4e38]),
    "g": st.none() | st.sampled_from([float("nan"), float("inf"), -0.0, 0.0, 0.1, -1.5, 2.5, 1.7e308]),
    "d": st.none() | st.decimals(Decimal("-9.99"), Decimal("9.99"), places=2),
    "t": st.none()
    | st.datetimes(datetime(1969, 12, 31), datetime(1970, 1, 2)).map(
        lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000)
    ),
    "b": st.none() | st.booleans(),
}
TYPES = {
    "k": "INT NOT NULL",
    "p": "STRING NOT NULL",
    "i": "INT",
    "s": "STRING",
    "f": "FLOAT",
    "g": "DOUBLE",
    "d": "DECIMAL(6, 2)",
    "t": "TIMESTAMP(3)",
    "b": "BOOLEAN",
}


def schema(
    columns: dict[str, str],
    primary: Sequence[str] = (),
    partition: Sequence[str] = (),
    options: dict[str, str] | None = None,
    schema_id: int = 0,
    ids: dict[str, int] | None = None,
) -> TableSchema:
    """A schema of columns (name to SQL type); field ids are their indexes unless given."""
    fields = [
        DataField((ids or {}).get(name, index), name, AtomicType(sql.removesuffix(" NOT NULL"), "NOT NULL" not in sql))
        for index, (name, sql) in enumerate(columns.items())
    ]
    return TableSchema(3, schema_id, fields, 99, list(partition), list(primary), options or {}, None)


@dataclass(frozen=True, slots=True)
class File:
    """An imagined file.

    Attributes:
        kept_stats: Columns that have value statistics; None: all of them, without naming them.
        first_row_id: Of the first row, with row tracking.
        write_cols: Columns that it holds, with data evolution; None: all.
        truncate: Length to which bounds of texts are cut, as `metadata.stats-mode` `truncate(n)`; 0: not at all.
    """

    rows: list[Row]
    written: TableSchema
    bucket: int = 0
    total_buckets: int = 1
    level: int = 0
    kept_stats: list[str] | None = None
    truncate: int = 0
    first_row_id: int | None = None
    write_cols: list[str] | None = None
    name: str = field(default="f")


def encode(values: Sequence[Any], fields: Sequence[DataField]) -> bytes:
    """A serialised row, as manifests hold it."""
    encoded: bytes = GenericRowSerializer.to_bytes(GenericRow(list(values), list(fields)))
    return encoded


def entries_of(files: Sequence[File]) -> pa.Table:
    """ADD entries of files, `ENTRY_SCHEMA`."""
    rows = [_entry(each) for each in files]
    columns = [pa.array([row.get(name) for row in rows], ENTRY_SCHEMA.field(name).type) for name in ENTRY_SCHEMA.names]
    return pa.table(columns, schema=ENTRY_SCHEMA)


def _entry(file: File) -> dict[str, Any]:
    written = file.written
    by_name = {each.name: each for each in written.fields}
    keys = [by_name[name] for name in written.primary_keys if name not in written.partition_keys]
    names = list(by_name) if file.write_cols is None else file.write_cols
    kept = [by_name[name] for name in (names if file.kept_stats is None else file.kept_stats)]
    partition = [by_name[name] for name in written.partition_keys]
    entry: dict[str, Any] = {
        "kind": 0,
        "partition": encode([file.rows[0][each.name] for each in partition], partition),
        "bucket": file.bucket,
        "total_buckets": file.total_buckets,
        "file_name": file.name,
        "row_count": len(file.rows),
        "schema_id": written.id,
        "level": file.level,
        "value_stats_cols": file.kept_stats,
        "first_row_id": file.first_row_id,
        "write_cols": file.write_cols,
    }
    for kind, fields in (("key", keys), ("value", kept)):
        bounds = [_bounds(file.rows, each, file.truncate if kind == "value" else 0) for each in fields]
        entry[f"{kind}_min"] = encode([low for low, _, _ in bounds], fields)
        entry[f"{kind}_max"] = encode([high for _, high, _ in bounds], fields)
        entry[f"{kind}_nulls"] = [nulls for _, _, nulls in bounds]
    return entry


def _bounds(rows: list[Row], column: DataField, truncate: int) -> tuple[Any, Any, int]:
    """As Arrow computes them (NaN left out) and Java cuts them: upper bounds rounded up, or none."""
    values = pa.array([row[column.name] for row in rows], PyarrowFieldParser.from_paimon_type(column.type))
    low, high = pc.min(values).as_py(), pc.max(values).as_py()
    if isinstance(low, str) and truncate:
        low, high = low[:truncate], high if len(high) <= truncate else _above(high[:truncate])
    return low, high, values.null_count


def _above(text: str) -> str | None:
    return None if ord(text[-1]) >= 0x10FFFF else text[:-1] + chr(ord(text[-1]) + 1)


def batch(rows: Sequence[Row], read: TableSchema) -> pa.RecordBatch:
    """Rows in the schema that is read; columns they lack are null."""
    types = [PyarrowFieldParser.from_paimon_type(each.type) for each in read.fields]
    names = [each.name for each in read.fields]
    columns = [pa.array([row.get(name) for row in rows], kind) for name, kind in zip(names, types, strict=True)]
    return pa.RecordBatch.from_arrays(columns, names=names)


def predicates(columns: Sequence[str]) -> st.SearchStrategy[Predicate]:
    return st.recursive(
        st.sampled_from(columns).flatmap(_leaf),
        lambda inner: st.builds(
            lambda method, parts: Predicate(method, None, None, parts),
            st.sampled_from(["and", "or"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
        max_leaves=5,
    )


_ORDERED = ["equal", "notEqual", "lessThan", "lessOrEqual", "greaterThan", "greaterOrEqual"]


def _leaf(column: str) -> st.SearchStrategy[Predicate]:
    value = VALUES[column]
    given = value.filter(lambda each: each is not None)
    choices = [
        st.builds(lambda m, v: Predicate(m, 0, column, [v]), st.sampled_from(_ORDERED), value),
        st.builds(
            lambda m, v: Predicate(m, 0, column, v), st.sampled_from(["in", "notIn"]), st.lists(value, max_size=3)
        ),
        st.builds(
            lambda m, v: Predicate(m, 0, column, v),
            st.sampled_from(["between", "notBetween"]),
            st.lists(given, min_size=2, max_size=2),
        ),
        st.builds(lambda m: Predicate(m, 0, column, None), st.sampled_from(["isNull", "isNotNull"])),
    ]
    if TYPES[column].startswith("STRING"):
        text = st.sampled_from(["", "a", "ab", "x" * 18, "é"])
        methods = st.sampled_from(["startsWith", "endsWith", "contains"])
        choices.append(st.builds(lambda m, v: Predicate(m, 0, column, [v]), methods, text))
        patterns = st.sampled_from(["a%", "%b", "a_c", "abc", r"a\%", "x%y"])
        like = st.sampled_from(["like", "notLike"])
        choices.append(st.builds(lambda m, v: Predicate(m, 0, column, [v]), like, patterns))
    return st.one_of(choices)


def rows(columns: Sequence[str], **fixed: Any) -> st.SearchStrategy[list[Row]]:
    """A few rows of these columns; `fixed` ones are the same in all of them."""
    one = st.fixed_dictionaries({name: VALUES[name] for name in columns if name not in fixed})
    return st.lists(one.map(lambda row: {**row, **fixed}), min_size=1, max_size=4)


APPEND = schema(TYPES, partition=["p"])
VALUE_COLUMNS = list(TYPES)
SETTINGS = settings(max_examples=2000 if SOAK else 15, deadline=None)


def where(method: str, column: str, *literals: Any) -> Predicate:
    return Predicate(method, 0, column, list(literals))


def both(*parts: Predicate) -> Predicate:
    return Predicate("and", None, None, list(parts))


def either(*parts: Predicate) -> Predicate:
    return Predicate("or", None, None, list(parts))


def kept(read: TableSchema, predicate: Predicate, files: Sequence[File], scan: Scan = "delta") -> list[bool]:
    written = {file.written.id: file.written for file in files}
    return list(Pruner(read, written.__getitem__, predicate).entries(entries_of(files), scan).to_pylist())


def matching(predicate: Predicate | None, given_rows: Sequence[Row], read: TableSchema) -> list[Row]:
    if predicate is None:
        return list(given_rows)
    return [row for row, ok in zip(given_rows, mask(predicate, batch(given_rows, read)).to_pylist(), strict=True) if ok]


def append_files(written: TableSchema) -> st.SearchStrategy[list[File]]:
    columns = [field.name for field in written.fields]
    one = st.sampled_from(["a", "b", "a" * 20]).flatmap(
        lambda p: st.builds(
            File,
            rows(columns, p=p),
            st.just(written),
            kept_stats=st.none() | st.lists(st.sampled_from(columns), unique=True),
            truncate=st.sampled_from([0, 16]),
        )
    )
    return st.lists(one, min_size=1, max_size=4)


@SETTINGS
@given(append_files(APPEND), predicates(VALUE_COLUMNS), st.sampled_from(["full", "delta"]))
def test_append_never_drops_a_file_with_a_matching_row(files: list[File], predicate: Predicate, scan: Scan) -> None:
    for file, keep in zip(files, kept(APPEND, predicate, files, scan), strict=True):
        assert keep or not matching(predicate, file.rows, APPEND)


@SETTINGS
@given(append_files(APPEND), predicates(["p"]))
def test_partition_filter_is_decided_exactly(files: list[File], predicate: Predicate) -> None:
    assert kept(APPEND, predicate, files) == [bool(matching(predicate, file.rows, APPEND)) for file in files]


OLD_TYPES = {
    "p": "STRING NOT NULL",
    "old": "INT",
    "i": "SMALLINT",
    "f": "FLOAT",
    "dropped": "STRING",
    "s": "VARCHAR(99)",
}
OLD = schema(OLD_TYPES, partition=["p"], ids={"p": 0, "old": 1, "i": 2, "f": 3, "dropped": 4, "s": 5})
NEW = schema(
    {"s": "STRING", "k": "BIGINT", "f": "DOUBLE", "p": "STRING NOT NULL", "i": "INT", "g": "DOUBLE"},
    partition=["p"],
    schema_id=1,
    ids={"s": 5, "k": 1, "f": 3, "p": 0, "i": 2, "g": 6},
)


@SETTINGS
@given(st.data(), predicates(["s", "k", "f", "p", "i", "g"]))
def test_statistics_follow_renames_widening_and_added_columns(data: st.DataObject, predicate: Predicate) -> None:
    p = data.draw(st.sampled_from(["a", "b"]))
    drawn = data.draw(rows(["s", "k", "f", "i"], p=p))
    as_float = pa.array([row["f"] for row in drawn], pa.float32()).to_pylist()
    written = [{**row, "old": row["k"], "dropped": "b", "f": f} for row, f in zip(drawn, as_float, strict=True)]
    read = [{**row, "f": f, "g": None} for row, f in zip(drawn, as_float, strict=True)]
    assert kept(NEW, predicate, [File(written, OLD)]) == [True] or not matching(predicate, read, NEW)


def test_a_file_from_before_a_column_was_added_matches_only_null() -> None:
    file = File([{"p": "a", "old": 1, "i": 1, "f": 1.0, "dropped": "b", "s": "s"}], OLD)
    assert kept(NEW, where("isNull", "g"), [file]) == [True]
    for predicate in (where("isNotNull", "g"), where("equal", "g", 1.0), where("notEqual", "g", 1.0)):
        assert kept(NEW, predicate, [file]) == [False]


@pytest.mark.parametrize(("old", "new"), [("BIGINT", "INT"), ("STRING", "INT"), ("INT", "STRING"), ("DOUBLE", "FLOAT")])
def test_a_cast_that_may_change_order_or_lose_values_prunes_nothing(old: str, new: str) -> None:
    value = "5" if old == "STRING" else 5
    wanted: Any = "9" if new == "STRING" else 9
    file = File([{"v": value}], schema({"v": old}))
    assert kept(schema({"v": new}, schema_id=1), where("equal", "v", wanted), [file]) == [True]


KEYED = {"k": "INT NOT NULL", "p": "STRING NOT NULL", "i": "INT", "s": "STRING"}


def keyed(**options: str) -> TableSchema:
    dashed = {name.replace("__", ".").replace("_", "-"): value for name, value in options.items()}
    return schema(KEYED, primary=["p", "k"], partition=["p"], options={"bucket": "2", **dashed})


@st.composite
def keyed_files(draw: st.DrawFn, written: TableSchema) -> list[File]:
    """Files with one row per key, sequence numbers rising; files of one level above 0 share no key."""
    files: list[File] = []
    for bucket in range(2):
        taken: dict[int, set[int]] = {}
        for _ in range(draw(st.integers(0, 4))):
            level = draw(st.sampled_from([0, 4, 5, 5]))
            drawn = {row["k"]: row for row in draw(rows(list(KEYED), p="a"))}
            free = [
                row for key, row in sorted(drawn.items()) if level == 0 or key not in taken.setdefault(level, set())
            ]
            if free:
                taken.setdefault(level, set()).update(row["k"] for row in free)
                files.append(File(free, written, bucket, -1, level, name=f"{bucket}-{len(files)}"))
    return files


def state(files: Sequence[File], engine: str) -> dict[tuple[int, int], Row]:
    """The table that files make: later levels first, then level 0 in order."""
    merged: dict[tuple[int, int], Row] = {}
    for file in sorted(files, key=lambda each: -each.level):
        for row in file.rows:
            before = merged.get((file.bucket, row["k"]), {})
            news = {name: value for name, value in row.items() if engine == "deduplicate" or value is not None}
            merged[file.bucket, row["k"]] = {**before, **news} if engine != "deduplicate" else news
    return merged


@SETTINGS
@given(st.data(), predicates(list(KEYED)), st.sampled_from(["deduplicate", "partial-update"]))
def test_full_plan_of_a_primary_key_table_is_what_it_is_without_pruning(
    data: st.DataObject, predicate: Predicate, engine: str
) -> None:
    read = keyed(merge_engine=engine)
    files = data.draw(keyed_files(read))
    if not files:
        return
    left = [file for file, keep in zip(files, kept(read, predicate, files, "full"), strict=True) if keep]
    before, after = (
        matching(predicate, list(state(some, engine).values()), read) if some else [] for some in (files, left)
    )
    assert sorted(map(repr, map(sorted, map(dict.items, after)))) == sorted(
        map(repr, map(sorted, map(dict.items, before)))
    )


@SETTINGS
@given(st.data(), predicates(list(KEYED)), st.sampled_from(["delta", "changelog"]), st.sampled_from(["none", "input"]))
def test_records_that_may_become_deletes_stay(
    data: st.DataObject, predicate: Predicate, scan: Scan, producer: str
) -> None:
    read = keyed(changelog_producer=producer)
    files = data.draw(keyed_files(read))
    on_keys, _ = split_and(predicate, ["k", "p"])
    for file, keep in zip(files, kept(read, predicate, files, scan) if files else [], strict=True):
        assert keep or not matching(on_keys, file.rows, read)
        assert keep or on_keys is not None


# ---------------------------------------------------------------------------------------------------- what it drops


def keyed_file(read: TableSchema, key: int, value: int | None, bucket: int = 0, level: int = 0, p: str = "a") -> File:
    return File([{"k": key, "p": p, "i": value, "s": "x"}], read, bucket, -1, level)


VALUE_5 = where("equal", "i", 5)


def test_key_and_partition_statistics_drop_in_every_scan() -> None:
    read = keyed()
    files = [keyed_file(read, 1, 5), keyed_file(read, 2, 5), keyed_file(read, 1, 5, p="b"), keyed_file(read, 1, 0)]
    predicate = both(where("equal", "k", 1), where("equal", "p", "a"))
    for scan in ("full", "delta", "changelog"):
        assert kept(read, predicate, files, scan) == [True, False, False, True]


def test_mixed_or_drops_nothing_where_deletes_may_come_out() -> None:
    read = keyed()
    files = [keyed_file(read, 3, 7)]
    mixed = either(*(both(where("equal", "k", key), VALUE_5) for key in (1, 2)))
    assert kept(read, mixed, files, "delta") == [True]
    assert kept(read, mixed, files, "full") == [False]


@pytest.mark.parametrize(
    ("producer", "scan", "drops"),
    [
        ("none", "delta", False),
        ("lookup", "delta", False),
        ("input", "changelog", False),
        ("lookup", "changelog", True),
        ("full-compaction", "changelog", True),
    ],
)
def test_value_statistics_in_follow_ups(producer: str, scan: Scan, drops: bool) -> None:
    read = keyed(changelog_producer=producer)
    assert kept(read, VALUE_5, [keyed_file(read, 1, 5), keyed_file(read, 2, 6)], scan) == [True, not drops]


@pytest.mark.parametrize(
    ("levels", "values", "expected"),
    [
        ([5, 5, 5], [5, 6, 7], [True, False, False]),
        ([5, 4], [5, 6], [True, True]),
        ([0, 0], [5, 6], [True, True]),
        ([0, 0], [4, 6], [False, False]),
        ([5, 4], [4, 6], [False, False]),
        ([0], [6], [False]),
    ],
)
def test_whole_bucket_rule(levels: list[int], values: list[int], expected: list[bool]) -> None:
    read = keyed()
    files = [
        keyed_file(read, key, value, level=level) for key, (level, value) in enumerate(zip(levels, values, strict=True))
    ]
    assert kept(read, VALUE_5, files, "full") == expected


@pytest.mark.parametrize("engine", ["partial-update", "aggregation"])
@pytest.mark.parametrize(
    ("vectors", "levels", "drops"), [("false", [4, 5], False), ("true", [4, 5], True), ("true", [0, 5], False)]
)
def test_whole_bucket_rule_where_merging_makes_rows(engine: str, vectors: str, levels: list[int], drops: bool) -> None:
    read = keyed(merge_engine=engine, deletion_vectors__enabled=vectors)
    files = [keyed_file(read, key, 6, level=level) for key, level in enumerate(levels)]
    assert kept(read, VALUE_5, files, "full") == [not drops] * 2


def test_pending_bucket_is_treated_as_a_follow_up() -> None:
    read = schema(KEYED, primary=["p", "k"], partition=["p"], options={"bucket": "-2"})
    files = [keyed_file(read, 1, 6, bucket=-2), keyed_file(read, 1, 6, bucket=0)]
    assert kept(read, VALUE_5, files, "full") == [True, False]
    assert kept(read, where("equal", "k", 9), files, "full") == [False, False]


EVOLVING = schema(TYPES, partition=["p"], options={"data-evolution.enabled": "true"})


@st.composite
def evolved(draw: st.DrawFn) -> tuple[list[File], list[list[Row]]]:
    """Files of ranges of rows, columns of which were written again, or never; and the rows of each range."""
    files: list[File] = []
    joined: list[list[Row]] = []
    values = [name for name in TYPES if name != "p"]
    first = 0
    for _ in range(draw(st.integers(1, 3))):
        partition = draw(st.sampled_from(["a", "b"]))
        now: list[Row] = [{"p": partition} for _ in range(draw(st.integers(1, 3)))]
        for columns in draw(
            st.lists(st.lists(st.sampled_from(values), min_size=1, unique=True), min_size=1, max_size=3)
        ):
            written = draw(st.lists(rows(columns, p=partition), min_size=len(now), max_size=len(now)))
            for row, (new, *_) in zip(now, written, strict=True):
                row.update(new)
            stats = draw(st.none() | st.lists(st.sampled_from(columns), unique=True))
            content = [each[0] for each in written]
            files.append(File(content, EVOLVING, first_row_id=first, write_cols=columns, kept_stats=stats))
        joined.append(now)
        first += len(now)
    return files, joined


@SETTINGS
@given(evolved(), predicates(VALUE_COLUMNS), st.sampled_from(["full", "delta"]), st.randoms())
def test_data_evolution_drops_all_files_of_the_same_rows_or_none(
    given_files: tuple[list[File], list[list[Row]]], predicate: Predicate, scan: Scan, rng: Random
) -> None:
    files, joined = given_files
    rng.shuffle(files)
    keep = kept(EVOLVING, predicate, files, scan)
    firsts = sorted({file.first_row_id for file in files if file.first_row_id is not None})
    for first, now in zip(firsts, joined, strict=True):
        answers = {answer for file, answer in zip(files, keep, strict=True) if file.first_row_id == first}
        assert answers == {True} or (answers == {False} and not matching(predicate, now, EVOLVING))


def test_data_evolution_drops_what_no_version_of_a_column_can_match() -> None:
    def file(first: int, value: int, count: int = 2, **more: Any) -> File:
        return File([{"p": "a", "i": value}] * count, EVOLVING, first_row_id=first, write_cols=["i"], **more)

    others = File([{"p": "a", "s": "x"}] * 2, EVOLVING, first_row_id=0, write_cols=["s"])
    five = where("equal", "i", 5)
    assert kept(EVOLVING, five, [file(0, 4), others, file(2, 5), file(0, 3)]) == [False, False, True, False]
    assert kept(EVOLVING, five, [file(0, 4), others, file(0, 5)]) == [True] * 3
    assert kept(EVOLVING, five, [others]) == [False] and kept(EVOLVING, where("isNull", "i"), [others]) == [True]
    # One that reaches over the rows of others belongs to all of them.
    assert kept(EVOLVING, five, [file(0, 4), file(2, 5), file(0, 1, count=4)]) == [True] * 3
    assert kept(EVOLVING, both(five, where("equal", "p", "b")), [file(0, 5)]) == [False]
    # It holds none of the columns that some of these rows have and others lack, which are null there.
    lacking = File([{"p": "a", "s": "x"}] * 2, EVOLVING, first_row_id=2, write_cols=["s"])
    over = File([{"p": "a", "f": 1.0}] * 4, EVOLVING, first_row_id=0, write_cols=["f"])
    assert kept(EVOLVING, where("isNull", "i"), [file(0, 4), lacking, over]) == [True] * 3
    assert kept(EVOLVING, where("isNull", "i"), [file(0, 4), others]) == [False] * 2


def test_nothing_is_dropped_without_statistics_or_by_a_literal_of_another_type() -> None:
    read = schema({"i": "INT", "c": "CHAR(3)", "t": "TIMESTAMP(3)"})
    row = {"i": 1, "c": "a", "t": datetime(2024, 1, 1)}
    assert kept(read, where("equal", "i", 5), [File([row], read, kept_stats=[])]) == [True]
    for predicate in (where("equal", "i", 2.5), where("equal", "c", "z"), where("equal", "i", 2**70)):
        assert kept(read, predicate, [File([row], read)]) == [True]


@pytest.mark.parametrize("column", ["FLOAT", "DOUBLE"])
def test_floats_may_hold_nan_that_no_statistic_shows(column: str) -> None:
    read = schema({"v": column})
    files = [File([{"v": 1.0}, {"v": float("nan")}], read)]
    for predicate in (where("greaterThan", "v", 5.0), where("notEqual", "v", 1.0), where("notBetween", "v", 0.0, 2.0)):
        assert matching(predicate, files[0].rows, read)
        assert kept(read, predicate, files) == [True]
    assert kept(read, where("lessThan", "v", 0.5), files) == [False]
    assert kept(read, where("equal", "v", 5.0), files) == [False]


def test_a_literal_is_rounded_to_the_float_that_it_is_compared_with() -> None:
    read = schema({"v": "FLOAT"})
    files = [File([{"v": pa.scalar(0.1, pa.float32()).as_py()}], read)]
    assert matching(where("equal", "v", 0.1), files[0].rows, read)
    assert kept(read, where("equal", "v", 0.1), files) == [True]


@pytest.mark.parametrize("column", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("size", [2**53 + 1, 2**63, 10**400], ids=["2^53+1", "2^63", "10^400"])
def test_an_integer_beyond_what_floats_hold_prunes_no_file_of_floats(column: str, size: int) -> None:
    read = schema({"v": column})
    files = [File([{"v": value}], read) for value in (-1.0, 1.0)]
    for method, literal in (("lessThan", size), ("greaterThan", -size), ("notEqual", size), ("equal", size)):
        assert kept(read, where(method, "v", literal), files) == [True, True]


def test_statistics_of_another_arity_say_nothing() -> None:
    read = schema({"i": "INT"})
    entries = entries_of([File([{"i": 1}], read)])
    empty = {"value_min": [encode([], [])], "value_max": [encode([], [])], "value_nulls": [[]]}
    for name, value in empty.items():
        entries = entries.set_column(entries.schema.get_field_index(name), name, pa.array(value, entries[name].type))
    for predicate in (where("equal", "i", 5), where("isNull", "i"), where("isNotNull", "i")):
        assert Pruner(read, {}.__getitem__, predicate).entries(entries, "delta").to_pylist() == [True]


@SETTINGS
@given(st.data(), predicates(["f", "g"]))
def test_floats_never_drop_a_file_with_a_matching_row(data: st.DataObject, predicate: Predicate) -> None:
    read = schema({"f": "FLOAT", "g": "DOUBLE"})
    drawn = [{**row, "f": pa.scalar(row["f"], pa.float32()).as_py()} for row in data.draw(rows(["f", "g"]))]
    assert kept(read, predicate, [File(drawn, read)]) == [True] or not matching(predicate, drawn, read)


def test_a_timestamp_literal_is_cut_to_the_unit_of_the_column() -> None:
    read = schema({"t": "TIMESTAMP(3)"})
    file = File([{"t": datetime(2024, 1, 1, 0, 0, 0, 5000)}], read)
    assert kept(read, where("equal", "t", datetime(2024, 1, 1, 0, 0, 0, 5999)), [file]) == [True]
    assert kept(read, where("equal", "t", datetime(2024, 1, 1, 0, 0, 0, 6000)), [file]) == [False]


BUCKETED = {"k": "INT", "s": "STRING"}


def hashed(written: TableSchema, values: Sequence[Row]) -> list[int]:
    data = pa.RecordBatch.from_pylist(list(values), pa.schema([("k", pa.int32()), ("s", pa.string())]))
    _, buckets = FixedBucketRowKeyExtractor(written).extract_partition_bucket_batch(data)
    return list(buckets)


@settings(max_examples=examples(120), deadline=None)
@given(st.sampled_from(["k", "s", "k,s"]), predicates(["k", "s"]), rows(["k", "s"]), st.integers(1, 7))
def test_bucket_selection_keeps_the_buckets_of_matching_rows(
    key: str, predicate: Predicate, given_rows: list[Row], total: int
) -> None:
    read = schema(BUCKETED, options={"bucket": str(total), "bucket-key": key})
    for row, bucket in zip(given_rows, hashed(read, given_rows), strict=True):
        keep = kept(read, predicate, [File([row], read, bucket, total, kept_stats=[])])
        assert keep == [True] or not matching(predicate, [row], read)


@pytest.mark.parametrize("function", ["default", "mod"])
def test_an_equality_on_the_bucket_key_leaves_one_bucket_of_each_number_of_buckets(function: str) -> None:
    read = schema(BUCKETED, options={"bucket": "4", "bucket-key": "k", "bucket-function.type": function})
    files = [
        File([{"k": 7, "s": ""}], read, bucket, total, kept_stats=[]) for total in (4, 6) for bucket in range(total)
    ]
    keep = kept(read, both(where("in", "k", 7, None), where("equal", "s", "")), files)
    assert (sum(keep[:4]), sum(keep[4:])) == (1, 1)
    if function == "mod":
        assert keep[3] and keep[4 + 1]
    assert all(kept(read, either(where("equal", "k", 7), where("equal", "s", "")), files))


def test_buckets_of_a_table_that_was_not_bucketed_by_these_keys_are_kept() -> None:
    read = schema(BUCKETED, options={"bucket": "4", "bucket-key": "k"}, schema_id=1)
    for options in (
        {"bucket": "-1"},
        {"bucket": "4", "bucket-key": "s"},
        {"bucket": "4", "bucket-function.type": "hive"},
    ):
        old = schema(BUCKETED, options=options)
        files = [File([{"k": 7, "s": ""}], old, bucket, 4, kept_stats=[]) for bucket in range(4)]
        assert all(kept(read, where("equal", "k", 7), files))


def test_manifests_are_dropped_by_partition_statistics() -> None:
    partition = [field for field in APPEND.fields if field.name == "p"]
    bounds = [("a", "a", 0), ("b", "c", 0), (None, None, 2), ("a", "c", 1)]
    rows_ = [
        {
            "num_added_files": 1,
            "num_deleted_files": 1,
            "partition_min": encode([low], partition),
            "partition_max": encode([high], partition),
            "partition_nulls": [nulls],
        }
        for low, high, nulls in bounds
    ]
    columns = [
        pa.array([row.get(name) for row in rows_], MANIFEST_SCHEMA.field(name).type) for name in MANIFEST_SCHEMA.names
    ]
    manifests = pa.table(columns, schema=MANIFEST_SCHEMA)

    def left(predicate: Predicate, read: TableSchema = APPEND) -> list[bool]:
        return list(Pruner(read, {}.__getitem__, predicate).manifests(manifests).to_pylist())

    assert left(where("equal", "p", "a")) == [True, False, False, True]
    assert left(where("isNull", "p")) == [False, False, True, True]
    assert left(both(where("equal", "p", "b"), where("equal", "i", 1))) == [False, True, False, True]
    assert left(either(where("equal", "p", "b"), where("equal", "i", 1))) == [True] * 4

    mixed = either(*(both(where("equal", "p", p), where("equal", "i", 1)) for p in ("b", "c")))
    assert left(mixed) == [False, True, False, True]
    assert left(mixed, keyed()) == [True] * 4


def test_no_entries_and_no_filter() -> None:
    pruner = Pruner(APPEND, {}.__getitem__, where("equal", "i", 5))
    assert len(pruner.entries(ENTRY_SCHEMA.empty_table(), "full")) == 0
    assert len(pruner.manifests(MANIFEST_SCHEMA.empty_table())) == 0
    files = [File([dict.fromkeys(TYPES) | {"p": "a", "k": 1}], APPEND)]
    assert Pruner(APPEND, {}.__getitem__, None).entries(entries_of(files), "delta").to_pylist() == [True]
