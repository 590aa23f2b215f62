"""Values of JSON in the types of a table: what fits comes out exactly, what does not is refused."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.cdc.change_reader import read_changes, reading_of, to_arrow
from pypaimon.streaming.cdc.change_records import Declared
from pypaimon.streaming.cdc.change_values import Reading, column_of
from pypaimon.streaming.errors import BadChangeError, StreamConfigError
from pypaimon.streaming.paimon.internals import ArrayType, AtomicType, DataField, MapType, RowType
from support.tables.change_rows import changed, fields


def one(value: Any, column: str, zone: str | None = None, unit: str | None = None) -> Any:
    record = json.dumps({"type": "insert", "data": {"id": 1, "v": value}})
    ((_, _, found),) = changed([record], "maxwell-json", fields(id="INT", v=column), time_zone=zone, time_unit=unit)
    return found


def nested(value: Any, kind: Any) -> Any:
    return column_of([value], kind, Declared(), Reading()).to_pylist()[0]


@pytest.mark.parametrize(
    ("value", "column", "expected"),
    [
        ("-128", "TINYINT", -128),
        (1.0, "INT", 1),
        (True, "SMALLINT", 1),
        (0, "BOOLEAN", False),
        ("TRUE", "BOOLEAN", True),
        ("1e3", "DOUBLE", 1000.0),
        ("-Infinity", "FLOAT", -math.inf),
        (7, "DECIMAL(3, 1)", Decimal("7.0")),
        ("7.10", "DECIMAL(3, 1)", Decimal("7.1")),
        (7, "STRING", "7"),
        (12.50, "STRING", "12.5"),
        (False, "STRING", "false"),
        ({"a": [1, 1.5, None]}, "STRING", '{"a":[1,1.5,null]}'),
        ("2026-11-21 00:00:00", "DATE", date(2026, 11, 21)),
        (0, "DATE", date(1970, 1, 1)),
        ("12:34:56.789000", "TIME", time(12, 34, 56, 789000)),
        ("2026-11-21T12:34:56.120000", "TIMESTAMP(2)", datetime(2026, 11, 21, 12, 34, 56, 120000)),
        ("2026-11-21", "TIMESTAMP(0)", datetime(2026, 11, 21)),
        ("2026-11-21 12", "TIMESTAMP(6)", datetime(2026, 11, 21, 12)),
        ("0001-01-01 00:00:00", "TIMESTAMP(6)", datetime(1, 1, 1)),
        (
            "2026-11-21T12:00:00-03:30",
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            datetime(2026, 11, 21, 15, 30, tzinfo=timezone.utc),
        ),
    ],
)
def test_what_fits(value: Any, column: str, expected: Any) -> None:
    assert one(value, column) == expected


@pytest.mark.parametrize(
    ("value", "column", "said"),
    [
        (128, "TINYINT", "out of bounds|too large"),
        (2**63, "BIGINT", "too large|too big"),
        (1.5, "INT", "expected a whole number"),
        ("1_0", "INT", "expected a whole number"),
        ("0x1", "INT", "expected a whole number"),
        ({"a": 1}, "INT", "expected a whole number"),
        (2, "BOOLEAN", "expected true, false, 0 or 1"),
        ([], "BOOLEAN", "expected true, false, 0 or 1"),
        ("abc", "DOUBLE", "could not convert"),
        ("1_0", "DOUBLE", "expected a number"),
        ("٣", "DECIMAL(3, 0)", "expected a number"),
        ("1e400", "DOUBLE", "out of range"),
        ("1e-999999999", "DECIMAL(3, 2)", "out of range"),
        (1e39, "FLOAT", "out of range"),
        ("7.15", "DECIMAL(3, 1)", "data loss"),
        (1000, "DECIMAL(3, 0)", "precision"),
        ("AbC=", "DECIMAL(3, 0)", "decimal.handling.mode"),
        ("NaN", "DECIMAL(3, 0)", "finite"),
        ("nö base64", "BYTES", "base64"),
        ("QU JD", "BYTES", "base64"),
        (5, "BYTES", "base64"),
        ("\ud800", "STRING", "surrogates"),
        ("0000-00-00", "DATE", "year 0|month must be|year must be"),
        ("2026-02-30", "DATE", "day"),
        ("2026-11-21 12:00:00", "DATE", "expected a day"),
        ("24:00:00", "TIME", "not a time of day"),
        ("12", "TIME", "expected a time of day"),
        ("٣", "INT", "expected a whole number"),
        ("-01:00:00", "TIME", "expected a time of day"),
        ("12:00:00.0001", "TIME", "finer than a millisecond"),
        (5, "TIME", "time_unit"),
        ("2026-11-21 12:34:56.123456", "TIMESTAMP(3)", "finer than the column"),
        ("2026-11-21T12:34:56Z", "TIMESTAMP(3)", "time_zone="),
        ("2026-11-21T12:34:56", "TIMESTAMP_LTZ(3)", "time_zone="),
        ("tomorrow", "TIMESTAMP(3)", "expected a moment"),
        ("9999-01-01 00:00:00", "TIMESTAMP(9)", "too large|too big|out of bounds"),
    ],
)
def test_what_does_not_fit_is_refused(value: Any, column: str, said: str) -> None:
    with pytest.raises(BadChangeError, match=f"record 1, column 'v': .*({said})"):
        one(value, column)


def test_a_number_as_long_as_the_memory_is_refused() -> None:
    text = '{"type":"insert","data":{"id":1,"v":1e999999999}}'
    for column in ("INT", "DOUBLE", "DECIMAL(38, 0)"):
        with pytest.raises(BadChangeError, match="record 1, column 'v'"):
            changed([text], "maxwell-json", fields(id="INT", v=column))


def test_the_error_names_the_record_among_many() -> None:
    records = [
        {"type": "insert", "data": {"id": number, "v": number if number != 700 else "x"}} for number in range(900)
    ]
    with pytest.raises(BadChangeError, match="'x' does not fit INT") as caught:
        changed(records, "maxwell-json", fields(id="INT", v="INT"))
    assert (caught.value.record, caught.value.column) == (701, "v")


def test_clocks_of_a_zone_around_the_change_of_the_hour() -> None:
    both = "TIMESTAMP(3)"
    assert one("2026-10-25T00:30:00Z", both, "Europe/Berlin") == datetime(2026, 10, 25, 2, 30)
    assert one("2026-10-25T01:30:00Z", both, "Europe/Berlin") == datetime(2026, 10, 25, 2, 30)
    assert one("2026-03-29T01:00:00Z", both, "Europe/Berlin") == datetime(2026, 3, 29, 3, 0)
    assert one("2026-07-01 12:00:00", "TIMESTAMP_LTZ(3)", "UTC") == datetime(2026, 7, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("clock", "zone", "hour", "minute"),
    [
        # The clock goes from 02:00 to 03:00, or (Lord Howe) from 02:00 to 02:30.
        ("2026-03-29 01:59:59", "Europe/Berlin", 0, 59),
        ("2026-03-29 02:30:00", "Europe/Berlin", 1, 30),
        ("2026-03-29 03:30:00", "Europe/Berlin", 1, 30),
        ("2026-10-04 02:15:00", "Australia/Lord_Howe", 15, 45),
        # From 03:00 back to 02:00, or from 02:00 back to 01:30.
        ("2026-10-25 02:30:00", "Europe/Berlin", 0, 30),
        ("2026-10-25 03:00:00", "Europe/Berlin", 2, 0),
        ("2026-04-05 01:45:00", "Australia/Lord_Howe", 14, 45),
    ],
)
def test_clocks_that_a_zone_leaves_out_or_has_twice(clock: str, zone: str, hour: int, minute: int) -> None:
    """As with Java's `LocalDateTime.atZone`."""
    found = one(clock, "TIMESTAMP_LTZ(3)", zone)
    assert (found.hour, found.minute) == (hour, minute)


def test_nested_values() -> None:
    moments = ArrayType(True, AtomicType("DATE"))
    assert nested(["2026-11-21", None], moments) == [date(2026, 11, 21), None]
    assert nested('["2026-11-21"]', moments) == [date(2026, 11, 21)]
    numbers = MapType(True, AtomicType("STRING", False), AtomicType("INT"))
    assert nested({"a": "1", "b": None}, numbers) == [("a", 1), ("b", None)]
    assert nested([["a", 1]], numbers) == [("a", 1)]
    row = RowType(True, [DataField(1, "x", AtomicType("DECIMAL(5, 2)")), DataField(2, "y", moments)])
    assert nested({"x": "1.5"}, row) == {"x": Decimal("1.50"), "y": None}
    for value, kind, said in (
        ({"z": 1}, row, "no field 'z'"),
        ("{", row, "Expecting"),
        (1, moments, "a list"),
        ([1], numbers, "pairs"),
    ):
        with pytest.raises(ValueError, match=said):
            nested(value, kind)


def test_only_inserts_can_be_added_to_a_table_without_a_key() -> None:
    inserts = [{"type": "insert", "data": {"id": 1}}]
    (found,) = read_changes(inserts, "maxwell-json", [])
    assert to_arrow(found, fields(id="INT"), Reading(), None).to_pydict() == {"id": [1]}
    (found,) = read_changes([*inserts, {"type": "delete", "data": {"id": 1}}], "maxwell-json", [])
    with pytest.raises(BadChangeError, match=r"record 2: it changes a row \(-D\)"):
        to_arrow(found, fields(id="INT"), Reading(), None)


def test_settings_are_checked() -> None:
    with pytest.raises(StreamConfigError, match="format: expected 'debezium-json'"):
        read_changes([], "debezium-avro", [])
    with pytest.raises(StreamConfigError, match="time_unit: expected"):
        reading_of("minutes", None)
    with pytest.raises(StreamConfigError, match="there is no time zone 'Mars/Base'"):
        reading_of(None, "Mars/Base")


MOMENTS = st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1))
NAMES = ("id", "small", "flag", "number", "sum", "text", "raw", "day", "at", "when")
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "small": st.none() | st.integers(-128, 127),
        "flag": st.none() | st.booleans(),
        "number": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "sum": st.none() | st.decimals(-(10**15), 10**15, places=4),
        "text": st.none() | st.text(),
        "raw": st.none() | st.binary(),
        "day": st.none() | st.dates(),
        "at": st.none() | MOMENTS,
        "when": st.none() | MOMENTS,
    }
).map(lambda row: {name: row[name] for name in NAMES})
ALL = fields(
    id="BIGINT",
    small="TINYINT",
    flag="BOOLEAN",
    number="DOUBLE",
    sum="DECIMAL(20, 4)",
    text="STRING",
    raw="BYTES",
    day="DATE",
    at="TIMESTAMP(6)",
    when="TIMESTAMP(6) WITH LOCAL TIME ZONE",
)


@st.composite
def spelled(draw: st.DrawFn, row: dict[str, Any], latin: bool, zoned: bool) -> dict[str, Any]:
    """A row as a format may write it down: numbers also as text, moments with a blank or a T."""
    found = dict(row)
    for name in ("id", "small", "number", "sum"):
        if found[name] is not None and (name == "sum" or draw(st.booleans())):
            found[name] = str(found[name])
    if found["flag"] is not None:
        found["flag"] = draw(st.sampled_from([found["flag"], int(found["flag"]), str(int(found["flag"]))]))
    if found["raw"] is not None:
        found["raw"] = found["raw"].decode("latin-1") if latin else base64.b64encode(found["raw"]).decode()
    for name in ("day", "at", "when"):
        if found[name] is not None:
            found[name] = found[name].isoformat(*([draw(st.sampled_from("T "))] if name != "day" else []))
    if found["when"] is not None and zoned:
        found["when"] += "Z"
    return found


@st.composite
def histories(draw: st.DrawFn, form: str) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """Change records of a format, and the rows that they tell of."""
    latin, zoned = form == "canal-json", form == "debezium-json"
    records: list[Any] = []
    expected: list[tuple[Any, ...]] = []
    for row in draw(st.lists(ROWS, max_size=6)):
        new = draw(spelled(row, latin, zoned))
        kind = draw(st.sampled_from(["insert", "update", "delete"]))
        if kind == "update":
            before = draw(ROWS) | {"id": row["id"]}
            old = {**draw(spelled(before, latin, zoned)), "id": new["id"]}
            expected += [("-U", *before.values()), ("+U", *row.values())]
        else:
            old = None
            expected.append(("+I" if kind == "insert" else "-D", *row.values()))
        records.append(written(form, kind, old, new))
    return records, expected


def written(form: str, kind: str, old: Any, new: Any) -> str:
    if form == "debezium-json":
        before, after = (new, None) if kind == "delete" else (old, new)
        return json.dumps({"op": {"insert": "c", "update": "u", "delete": "d"}[kind], "before": before, "after": after})
    if form == "canal-json":
        return json.dumps({"type": kind.upper(), "data": [new], "old": None if old is None else [old]})
    return json.dumps({"type": kind, "data": new} | ({} if old is None else {"old": old}))


@pytest.mark.parametrize("form", ["debezium-json", "canal-json", "maxwell-json"])
def test_what_is_written_down_comes_back(form: str) -> None:
    @settings(max_examples=25)
    @given(histories(form))
    def check(history: tuple[list[Any], list[tuple[Any, ...]]]) -> None:
        records, expected = history
        zone = None if form == "debezium-json" else "UTC"
        found = changed(records, form, ALL, time_zone=zone)
        assert [(*row[:-1], row[-1] and row[-1].replace(tzinfo=None)) for row in found] == expected

    check()
