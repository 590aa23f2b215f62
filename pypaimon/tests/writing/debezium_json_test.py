"""Debezium's events: with and without schema, every operation, what each type of Connect means, what is refused."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from pypaimon.streaming.writing.changes.change_reader import read_changes
from pypaimon.streaming.writing.changes.records import BadChangeError
from support.tables.change_rows import changed, fields

PRODUCTS = fields(id="BIGINT NOT NULL", name="STRING", description="STRING", weight="DOUBLE")
SCOOTER = {"id": 111, "name": "scooter", "description": "Big 2-wheel scooter", "weight": 5.18}
OLD = (111, "scooter", "Big 2-wheel scooter", 5.18)
NEW = (111, "scooter", "Big 2-wheel scooter", 5.15)
DECIMAL_0 = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "0"}}


def event(op: str, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "source": {"version": "2.7.0.Final", "connector": "mysql", "db": "inventory", "table": "products"},
        "op": op,
        "ts_ms": 1589362330904,
        "transaction": None,
    }


def schema(*columns: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "struct", "fields": list(columns), "optional": True, "name": "inventory.products.Value"}
    return {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}], "name": "Envelope"}


def test_every_operation_on_rows() -> None:
    records = [
        event("r", None, SCOOTER),
        event("c", None, {**SCOOTER, "id": 112}),
        event("u", SCOOTER, {**SCOOTER, "weight": 5.15}),
        event("d", {**SCOOTER, "weight": 5.15}),
        None,
    ]
    assert changed(records, "debezium-json", PRODUCTS) == [
        ("+I", *OLD),
        ("+I", 112, *OLD[1:]),
        ("-U", *OLD),
        ("+U", *NEW),
        ("-D", *NEW),
    ]


@pytest.mark.parametrize("encode", [json.dumps, lambda each: json.dumps(each).encode(), lambda each: each])
def test_the_envelope_of_connect_and_the_kinds_of_input(encode: Any) -> None:
    records = [{"schema": schema(), "payload": event("u", SCOOTER, {**SCOOTER, "weight": 5.15})}]
    assert changed(map(encode, records), "debezium-json", PRODUCTS) == [("-U", *OLD), ("+U", *NEW)]


@pytest.mark.parametrize("tombstone", [None, b"null", {"schema": None, "payload": None}])
def test_tombstones_and_messages_of_the_log_are_passed_over(tombstone: Any) -> None:
    assert changed([tombstone, event("m")], "debezium-json", PRODUCTS) == []


def test_an_update_without_the_row_before_is_the_new_row_alone() -> None:
    assert changed([event("u", None, SCOOTER)], "debezium-json", PRODUCTS) == [("+U", *OLD)]


def test_an_update_of_the_key_is_a_delete_and_an_insert() -> None:
    records = [event("u", SCOOTER, {**SCOOTER, "id": 7})]
    assert changed(records, "debezium-json", PRODUCTS) == [("-D", *OLD), ("+I", 7, *OLD[1:])]


def after(**span: float) -> datetime:
    return datetime(1970, 1, 1) + timedelta(**span)


def unscaled(number: int) -> str:
    return base64.b64encode(number.to_bytes(4, "big", signed=True)).decode()


@pytest.mark.parametrize(
    ("declared", "value", "column", "expected"),
    [
        ({"type": "int32", "name": "io.debezium.time.Date"}, 18000, "DATE", date(2019, 4, 14)),
        ({"type": "int32", "name": "org.apache.kafka.connect.data.Date"}, -1, "DATE", date(1969, 12, 31)),
        ({"type": "int32", "name": "io.debezium.time.Time"}, 3_600_001, "TIME", time(1, 0, 0, 1000)),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, 3_600_001_000, "TIME", time(1, 0, 0, 1000)),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 1500, "TIMESTAMP(6)", after(seconds=1.5)),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, -1, "TIMESTAMP(6)", after(microseconds=-1)),
        ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 2000, "TIMESTAMP(6)", after(microseconds=2)),
        (
            {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
            "2020-09-27T15:37:24.058468+02:00",
            "TIMESTAMP(6) WITH LOCAL TIME ZONE",
            datetime(2020, 9, 27, 13, 37, 24, 58468, timezone.utc),
        ),
        (
            {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            unscaled(-12345),
            "DECIMAL(10, 2)",
            Decimal("-123.45"),
        ),
        (
            {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
            "1234",
            "DECIMAL(10, 2)",
            Decimal("-26588.24"),
        ),
        (DECIMAL_0, "1234", "BIGINT", -2658824),
        (DECIMAL_0, "1234", "DOUBLE", -2658824.0),
        (DECIMAL_0, "1234", "STRING", "-2658824"),
        ({**DECIMAL_0, "parameters": {"scale": "8"}}, unscaled(1), "STRING", "0.00000001"),
        (DECIMAL_0, unscaled(1), "BOOLEAN", True),
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 864000000, "DATE", date(1970, 1, 11)),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, -86400000000, "DATE", date(1969, 12, 31)),
        (
            {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"},
            {"scale": 3, "value": unscaled(12345)},
            "DECIMAL(10, 3)",
            Decimal("12.345"),
        ),
        ({"type": "bytes"}, base64.b64encode(b"\x00\xff").decode(), "BYTES", b"\x00\xff"),
        ({"type": "boolean"}, True, "BOOLEAN", True),
        ({"type": "int16"}, 1, "BOOLEAN", True),
        ({"type": "string", "name": "io.debezium.data.Json"}, '{"a": 1}', "STRING", '{"a": 1}'),
    ],
)  # fmt: skip
def test_the_types_of_connect(declared: dict[str, Any], value: Any, column: str, expected: Any) -> None:
    record = {"schema": schema({**declared, "field": "v"}), "payload": event("c", None, {"id": 1, "v": value})}
    assert changed([record], "debezium-json", fields(id="BIGINT", v=column)) == [("+I", 1, expected)]


def test_a_moment_that_is_no_midnight_is_no_day() -> None:
    moment = {"type": "int64", "name": "io.debezium.time.Timestamp", "field": "v"}
    record = {"schema": schema(moment), "payload": event("c", None, {"id": 1, "v": 20000})}
    with pytest.raises(BadChangeError, match="record 1, column 'v': 20000 does not fit DATE: it is finer than"):
        changed([record], "debezium-json", fields(id="BIGINT", v="DATE"))


@pytest.mark.parametrize("parameters", [{"scale": "x"}, {"scale": None}, {"connect.decimal.precision": []}, [1], 5])
def test_decimals_whose_digits_cannot_be_read(parameters: Any) -> None:
    column = {**DECIMAL_0, "parameters": parameters, "field": "v"}
    record = {"schema": schema(column), "payload": event("c", None, {"id": 1, "v": "AQ=="})}
    with pytest.raises(BadChangeError, match="record 2, column 'schema': expected the digits of a decimal"):
        read_changes([None, record], "debezium-json", ["id"])


@pytest.mark.parametrize("fields", [5, True, {"a": 1}])
def test_a_schema_without_a_list_of_fields(fields: Any) -> None:
    record = {"schema": {"fields": fields}, "payload": event("c", None, SCOOTER)}
    with pytest.raises(BadChangeError, match="record 1, column 'schema': expected a list of 'fields'"):
        read_changes([record], "debezium-json", ["id"])


def test_names_in_a_schema_that_are_no_text_say_nothing() -> None:
    record = {"schema": schema({"field": [], "type": {}, "name": {}}), "payload": event("c", None, SCOOTER)}
    assert changed([record], "debezium-json", PRODUCTS) == [("+I", *OLD)]


def test_types_that_change_within_a_call() -> None:
    before = schema({"type": "int64", "name": "io.debezium.time.Timestamp", "field": "v"})
    after = schema({"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "v"})
    records = [{"schema": each, "payload": event("c", None, {"id": 1, "v": 5000})} for each in (before, after, before)]
    found = changed(records, "debezium-json", fields(id="BIGINT", v="TIMESTAMP(6)"))
    assert [row[2].microsecond for row in found] == [0, 5000, 0]


def test_numbers_of_moments_need_a_unit() -> None:
    records = [event("c", None, {"id": 1, "v": 5})]
    columns = fields(id="BIGINT", v="TIMESTAMP(6)")
    with pytest.raises(BadChangeError, match=r"record 1, column 'v': 5 does not fit TIMESTAMP\(6\).*time_unit='ms'"):
        changed(records, "debezium-json", columns)
    assert changed(records, "debezium-json", columns, time_unit="ms") == [
        ("+I", 1, datetime(1970, 1, 1, 0, 0, 0, 5000))
    ]


@pytest.mark.parametrize("placeholder", ["__debezium_unavailable_value", ["__debezium_unavailable_value"]])
def test_a_value_that_postgresql_left_out_is_no_value(placeholder: Any) -> None:
    records = [event("c", None, SCOOTER), event("u", None, {**SCOOTER, "description": placeholder})]
    with pytest.raises(BadChangeError, match=r"record 2, column 'description': .*REPLICA IDENTITY FULL"):
        read_changes(records, "debezium-json", ["id"])


@pytest.mark.parametrize(
    ("record", "column", "said"),
    [
        (b"\xff", None, "no text in UTF-8"),
        ("{", None, "no JSON"),
        ("", None, "no JSON"),
        ("[" * 100_000, None, "no JSON"),
        ("[1]", None, "expected a JSON object, got list"),
        (7, None, "expected bytes, str, a mapping or None, got int"),
        ({"id": 1}, None, "no field 'op'"),
        ({"payload": 3}, "payload", "expected an object, got int"),
        (event("x"), "op", "expected c, r, u, d, m or t, got 'x'"),
        (event("t"), None, "truncated"),
        (event("c"), "after", "the row is missing"),
        (event("u", SCOOTER), "after", "the row is missing"),
        (event("d"), "before", "the row is missing"),
        (event("c", None, '{"_id": 1}'), "after", "expected an object of columns, got str"),
    ],
)
def test_records_that_are_none(record: Any, column: str | None, said: str) -> None:
    with pytest.raises(BadChangeError, match=said) as caught:
        read_changes([event("c", None, SCOOTER), record], "debezium-json", ["id"])
    assert (caught.value.record, caught.value.column) == (2, column)
