"""File indexes of Java's tables: files that cannot match are not fetched, and rows are those of a read without them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypaimon import CatalogFactory

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.files.row_id_groups import row_id_groups
from pypaimon.streaming.logs import FIELDS as LOGGED
from pypaimon.streaming.paimon.filter_internals import Predicate
from support.samples import examples
from support.stores.counting_file_io import CountingFileIO
from support.stores.fault_file_io import SCHEME
from support.tables.indexed_tables import FIELDS, TABLES, tables

pytestmark = [pytest.mark.slow, pytest.mark.soak]

METHODS = ("equal", "in", "notEqual", "notIn", "lessThan", "greaterOrEqual", "between", "isNull", "isNotNull")
SETTINGS = settings(max_examples=examples(60), deadline=None)
NAMES = [name for name, _ in FIELDS]
READS = {"read": {}, "unread": {"file-index.read.enabled": "false"}}


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tables lie; tests do not change them."""
    directory: Path = tmp_path_factory.mktemp("indexed")
    tables(directory)
    return directory


def handle(directory: Path, name: str, **options: str) -> Any:
    return CatalogFactory.create({"warehouse": str(directory / name)}).get_table("d.t").copy(options)


def rows(table: Any, predicate: Predicate | None, start: str = "earliest", unmatched: str = "delete") -> list[Any]:
    builder = stream_read_builder(table).with_start(start).with_end(latest=True)
    if predicate is not None:
        builder.with_filter(predicate, unmatched=unmatched)
    with builder.open_sync() as stream:
        return [(batch.snapshot_id, *row.values()) for batch in stream for row in batch.data.to_pylist()]


def literals(column: str) -> st.SearchStrategy[Any]:
    """Values as the tables hold them, and some that they do not."""
    number = st.integers(-1, 75)
    return {
        "b": number.map(lambda each: each * 10**15),
        "s": number.map(lambda each: f"s{each}") | st.sampled_from(["new 1", "after"]),
        "d": number.map(lambda each: Decimal(f"{each - 30}.25")),
        "t": st.datetimes(datetime(2024, 1, 1), datetime(2024, 10, 1)).map(lambda each: each.replace(microsecond=0))
        | st.builds(
            lambda month, step: datetime(2024, month, 2, 3, 4, step, 1000 * step), st.integers(1, 8), st.integers(0, 3)
        ),
        "f": number.map(lambda each: each / 4 - 5),
    }.get(column, number)


@st.composite
def leaves(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from(NAMES))
    methods = [
        "equal",
        "equal",
        "in",
        "notEqual",
        "notIn",
        "lessThan",
        "greaterOrEqual",
        "between",
        "isNull",
        "isNotNull",
    ]
    method = draw(st.sampled_from(methods))
    count = {"in": 2, "notIn": 2, "between": 2, "isNull": 0, "isNotNull": 0}.get(method, 1)
    return Predicate(method, 0, column, draw(st.lists(literals(column), min_size=count, max_size=count)))


def predicates() -> st.SearchStrategy[Predicate]:
    def joined(parts: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        several = st.lists(parts, min_size=2, max_size=3)
        return st.builds(Predicate, st.sampled_from(["and", "and", "or"]), st.none(), st.none(), several)

    return st.recursive(leaves(), joined, max_leaves=4)


def suited(predicate: Predicate, name: str) -> Predicate:
    """The filter on the newest columns of a table, one of which has other columns than the rest."""
    if predicate.method in ("and", "or"):
        return Predicate(predicate.method, None, None, [suited(part, name) for part in predicate.literals or ()])
    if name != "append_beside" or predicate.field not in ("n", "f"):
        return predicate
    values = [int(each) for each in predicate.literals or ()]
    return Predicate(predicate.method, 0, "m" if predicate.field == "n" else "f", values)


@SETTINGS
@given(
    st.sampled_from(list(TABLES)),
    predicates(),
    st.sampled_from(["earliest", "latest-full"]),
    st.sampled_from(["delete", "drop"]),
)
def test_rows_are_those_of_a_read_without_indexes(
    unpacked: Path, name: str, predicate: Predicate, start: str, unmatched: str
) -> None:
    found = {
        how: rows(handle(unpacked, name, **options), suited(predicate, name), start, unmatched)
        for how, options in READS.items()
    }
    assert found["read"] == found["unread"]


def fetched(directory: Path, name: str, predicate: Predicate, suffix: str, start: str, **options: str) -> list[str]:
    table = handle(directory, name, **options)
    table.file_io, table.table_path = CountingFileIO(), SCHEME + str(table.table_path)
    rows(table, predicate, start)
    return sorted(each for each in table.file_io.bytes_read if each.endswith(suffix))


FILTERS = {
    "bloom filter": Predicate("equal", 0, "k", [72]),
    "bitmap": Predicate("in", 0, "n", [30, 31, 32, 33]),
    "range bitmap": Predicate("greaterThan", 0, "t", [datetime(2024, 8, 1)]),
    "bit slices": Predicate("lessThan", 0, "b", [10**15]),
    "two columns": Predicate(
        "and", None, None, [Predicate("equal", 0, "n", [30]), Predicate("equal", 0, "s", ["s31"])]
    ),
}


@pytest.mark.parametrize("what", FILTERS)
@pytest.mark.parametrize(
    ("place", "start"),
    [
        ("embedded", "earliest"),
        ("beside", "latest-full"),
        pytest.param("beside", "earliest", marks=pytest.mark.nightly),
        pytest.param("embedded", "latest-full", marks=pytest.mark.nightly),
    ],
)
def test_files_that_cannot_match_are_not_fetched(unpacked: Path, what: str, place: str, start: str) -> None:
    name, predicate = f"append_{place}", suited(FILTERS[what], f"append_{place}")
    data, without = (fetched(unpacked, name, predicate, ".parquet", start, **READS[how]) for how in READS)
    indexes = fetched(unpacked, name, predicate, ".index", start)
    assert set(data) < set(without)
    assert len(data) <= len(without) / 2
    assert bool(indexes) == (place == "beside")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("vectors_embedded", "latest-full"),
        ("vectors_beside", "latest-full"),
        ("lookup_embedded", "earliest"),
        ("lookup_embedded", "latest-full"),
        ("evolution_embedded", "earliest"),
        ("evolution_beside", "earliest"),
    ],
)
def test_fewer_files_are_fetched(unpacked: Path, name: str, start: str) -> None:
    predicate = FILTERS["two columns"]
    data, without = (fetched(unpacked, name, predicate, ".parquet", start, **READS[how]) for how in READS)
    assert set(data) < set(without)


@pytest.mark.parametrize("place", ["embedded", "beside"])
@pytest.mark.parametrize(
    ("predicate", "read"),
    [
        (Predicate("equal", 0, "s", ["s31"]), False),
        (Predicate("equal", 0, "s", ["new 1"]), True),
        (
            Predicate("and", None, None, [Predicate("equal", 0, "s", ["new 1"]), Predicate("lessThan", 0, "k", [99])]),
            True,
        ),
        (Predicate("or", None, None, [Predicate("equal", 0, "s", ["s31"]), Predicate("equal", 0, "k", [-1])]), True),
    ],
    ids=["replaced", "newest", "newest beside a column of the older file", "column without index"],
)
def test_files_of_the_same_rows_are_asked_about_the_columns_that_are_read_from_them(
    unpacked: Path, place: str, predicate: Predicate, read: bool
) -> None:
    """Columns n and s of some rows were written anew: what they were before does not count."""
    table = handle(unpacked, f"evolution_{place}")
    with stream_read_builder(table).with_start("latest-full").with_end(latest=True).new_streaming_scan() as scan:
        files = [file for plan in scan.stream_sync() for split in plan.splits() for file in split.files]
    (together,) = (group.files for group in row_id_groups(files) if len(group.files) > 1)
    assert [file.write_cols for file in together] == [["n", "s"], None]
    data = fetched(unpacked, f"evolution_{place}", predicate, ".parquet", "latest-full")
    assert {file.file_name in data for file in together} == {read}


@pytest.mark.parametrize("place", ["embedded", "beside"])
def test_a_record_that_does_not_match_still_takes_away_the_one_that_did(unpacked: Path, place: str) -> None:
    """In follow-ups without a changelog its file is read: by an index of values it could have been left out."""
    parts = [Predicate("greaterOrEqual", 0, "k", [0]), FILTERS["bit slices"]]
    name, predicate = f"deduplicate_{place}", Predicate("and", None, None, parts)
    kinds = [row[1] for row in rows(handle(unpacked, name), predicate)]
    assert kinds.count("-D") > 10
    data, without = (fetched(unpacked, name, predicate, ".parquet", "earliest", **READS[how]) for how in READS)
    assert data == without
    assert not fetched(unpacked, name, FILTERS["bit slices"], ".index", "earliest")


def test_an_index_file_is_fetched_for_no_column_that_it_lacks(unpacked: Path) -> None:
    predicate = Predicate("equal", 0, "k", [1])
    assert not fetched(unpacked, "evolution_beside", predicate, ".index", "earliest")
    assert fetched(unpacked, "evolution_beside", Predicate("equal", 0, "n", [-1]), ".index", "earliest")
    # Only the last file has this column: others had another one of the same name.
    assert len(fetched(unpacked, "append_beside", Predicate("equal", 0, "f", [1]), ".index", "earliest")) == 1


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Tables that a test may damage."""
    tables(tmp_path)
    return tmp_path


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    with caplog.at_level(logging.WARNING, "pypaimon.streaming"):
        yield lambda: [vars(each)[LOGGED] for each in caplog.records if hasattr(each, LOGGED)]


def damaged(path: Path, how: str) -> None:
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "of another version":
        path.write_bytes(data[:11] + b"\x02" + data[12:])
    else:
        path.write_bytes({"empty": b"", "cut off": data[: len(data) // 2], "other bytes": b"\xff" * len(data)}[how])


@pytest.mark.parametrize("how", ["missing", "of another version", "empty", "cut off", "other bytes"])
def test_an_index_file_that_cannot_be_read_is_not_used(own: Path, warnings: Any, how: str) -> None:
    predicate = suited(FILTERS["bit slices"], "append_beside")
    expected = rows(handle(own, "append_beside"), predicate)
    indexes = list((own / "append_beside").rglob("*.index"))
    assert expected and not warnings()
    for path in indexes:
        damaged(path, how)
    assert rows(handle(own, "append_beside"), predicate) == expected
    told = warnings()
    assert {each["event"] for each in told} == {"index_unused"}
    assert all(each["file"].endswith(".parquet") and each["error"] for each in told)
    if how == "of another version":
        assert all("it is of version 2, known is 1" in each["error"] for each in told)
