"""Debezium's events: with and without schema, every operation, what each type of Connect means, what is refused."""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pypaimon.streaming.cdc.change_reader import read_changes
from pypaimon.streaming.errors import BadChangeError, StreamConfigError
from pypaimon.streaming.paimon.internals import ArrayType, AtomicType, DataField
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


def test_a_time_other_than_midnight_is_not_a_day() -> None:
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


def test_names_in_a_schema_that_are_not_texts_say_nothing() -> None:
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


CLOCKS = [
    ({"type": "int64", "name": "io.debezium.time.Timestamp"}, lambda micros: micros // 1000),
    ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, lambda micros: micros),
    ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, lambda micros: micros * 1000),
    ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, lambda micros: micros // 1000),
    ({"type": "string", "name": "io.debezium.time.IsoTimestamp"}, lambda micros: f"{after(microseconds=micros)}Z"),
    ({"type": "string"}, lambda micros: str(after(microseconds=micros))),
]
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kathmandu")


def of_clock(clock: datetime, kind: str, zone: str | None, which: int) -> Any:
    """What a clock on the wall becomes, in one of the ways that Debezium writes it."""
    declared, spelled = CLOCKS[which]
    value = spelled((clock - datetime(1970, 1, 1)) // timedelta(microseconds=1))
    record = {"schema": schema({**declared, "field": "v"}), "payload": event("c", None, {"id": 1, "v": value})}
    ((_, _, found),) = changed([record], "debezium-json", fields(id="BIGINT", v=kind), time_zone=zone)
    return found


@given(st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)), st.sampled_from(ZONES))
def test_a_clock_on_the_wall_is_one_moment_however_it_is_written(clock: datetime, zone: str) -> None:
    clock = clock.replace(microsecond=clock.microsecond // 1000 * 1000)
    for which in range(len(CLOCKS)):
        assert of_clock(clock, "TIMESTAMP(3)", None, which) == clock
        assert of_clock(clock, "TIMESTAMP(3)", zone, which) == clock
        expected = clock.replace(tzinfo=ZoneInfo(zone)).astimezone(timezone.utc)
        assert of_clock(clock, "TIMESTAMP_LTZ(3)", zone, which) == expected


@pytest.mark.parametrize("which", range(len(CLOCKS)))
def test_a_local_time_is_not_an_instant_without_its_zone(which: int) -> None:
    with pytest.raises(BadChangeError, match=r"column 'v': .*it has no time zone, and the column needs one"):
        of_clock(datetime(2026, 1, 1, 12), "TIMESTAMP_LTZ(3)", None, which)


def test_numbers_without_a_schema_are_clocks_on_the_wall_and_plain_ones_with_a_schema_count_as_the_column() -> None:
    noon, columns = {"id": 1, "v": 1767268800000}, fields(id="BIGINT", v="TIMESTAMP_LTZ(3)")
    with pytest.raises(BadChangeError, match="it has no time zone"):
        changed([event("c", None, noon)], "debezium-json", columns, time_unit="ms")
    plain = {"schema": schema({"type": "int64", "field": "v"}), "payload": event("c", None, noon)}
    for record, zone, hour in (
        (event("c", None, noon), "Europe/Berlin", 11),
        (event("c", None, noon), "UTC", 12),
        (plain, "Europe/Berlin", 12),
        (plain, None, 12),
    ):
        ((_, _, found),) = changed([record], "debezium-json", columns, time_unit="ms", time_zone=zone)
        assert found == datetime(2026, 1, 1, hour, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 1767268800000),
        ({"type": "string", "name": "io.debezium.time.IsoTimestamp"}, "2026-01-01T12:00:00Z"),
    ],
)
def test_clocks_on_the_wall_inside_of_arrays(item: dict[str, Any], value: Any) -> None:
    moments = ArrayType(True, AtomicType("TIMESTAMP_LTZ(3)"))
    declared = schema({"type": "array", "items": item, "field": "v"})
    record = {"schema": declared, "payload": event("c", None, {"v": [value]})}
    columns = [DataField(0, "v", moments)]
    found = changed([record], "debezium-json", columns, (), time_unit="ms", time_zone="Europe/Berlin")
    assert found == [("+I", [datetime(2026, 1, 1, 11, tzinfo=timezone.utc)])]


@pytest.mark.parametrize(
    ("declared", "value", "column", "expected"),
    [
        ("IsoDate", "2026-11-21Z", "DATE", date(2026, 11, 21)),
        ("IsoTime", "10:15:30.5Z", "TIME", time(10, 15, 30, 500000)),
        ("IsoTimestamp", "2026-11-21T10:15:30Z", "STRING", "2026-11-21T10:15:30Z"),
    ],
)
def test_the_z_of_isostring_says_nothing(declared: str, value: str, column: str, expected: Any) -> None:
    types = schema({"type": "string", "name": f"io.debezium.time.{declared}", "field": "v"})
    record = {"schema": types, "payload": event("c", None, {"id": 1, "v": value})}
    assert changed([record], "debezium-json", fields(id="BIGINT", v=column)) == [("+I", 1, expected)]


def placeholders(raw: bytes, text: str) -> dict[str, Any]:
    """What Debezium writes for a value that is not known, by type of column and `*.handling.mode`."""
    return {
        "text": text,
        "bytea as bytes": base64.b64encode(raw).decode(),
        "blob as base64-url-safe": base64.urlsafe_b64encode(raw).decode(),
        "blob as hex": raw.hex(),
        "text[]": [text],
        "bytea[]": [base64.b64encode(raw).decode()],
        "integer[], date[], bigint[]": [int.from_bytes([byte], "big", signed=True) for byte in raw],
        "uuid[]": [str(UUID(bytes=hashlib.md5(raw).digest(), version=3))],
        "hstore as map": {text: text},
        "hstore as json": json.dumps({text: text}, separators=(",", ":"), ensure_ascii=False),
    }


PLACEHOLDERS = [
    (None, placeholders(b"__debezium_unavailable_value", "__debezium_unavailable_value")),
    ('left "out" ä', placeholders('left "out" ä'.encode(), 'left "out" ä')),
    ("hex:00ff7f", placeholders(b"\x00\xff\x7f", "\x00\ufffd\x7f")),
]


@pytest.mark.parametrize(
    ("setting", "placeholder"),
    [
        pytest.param(setting, value, id=f"{setting}, {of}")
        for setting, all_ in PLACEHOLDERS
        for of, value in all_.items()
    ],
)
def test_a_value_that_the_database_left_out_is_not_a_value(setting: str | None, placeholder: Any) -> None:
    unknown = {**SCOOTER, "description": placeholder}
    for new in (event("c", None, unknown), event("u", SCOOTER, unknown)):
        with pytest.raises(BadChangeError, match=r"record 2, column 'description': .*REPLICA IDENTITY FULL"):
            read_changes([event("c", None, SCOOTER), new], "debezium-json", ["id"], setting)
    old = [event("u", unknown, SCOOTER), event("d", unknown)]
    assert changed(old, "debezium-json", PRODUCTS, placeholder=setting) == [
        ("-U", *OLD[:2], None, OLD[3]),
        ("+U", *OLD),
        ("-D", *OLD[:2], None, OLD[3]),
    ]


@pytest.mark.parametrize(
    "value", ["__debezium", "", [], [95, 95], {}, {"__debezium_unavailable_value": "a"}, [None], 1]
)
def test_what_only_resembles_a_placeholder_is_a_value(value: Any) -> None:
    (found,) = read_changes([event("c", None, {"id": 1, "v": value})], "debezium-json", ["id"])
    assert found.values("v") == [value]


def test_java_names_the_uuid_of_a_placeholder() -> None:
    unknown = ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]
    with pytest.raises(BadChangeError, match="column 'v'"):
        read_changes([event("c", None, {"id": 1, "v": unknown})], "debezium-json", ["id"])


@pytest.mark.parametrize("setting", ["", "hex:", "hex:0", "hex:xy"])
def test_texts_that_are_not_placeholders(setting: str) -> None:
    with pytest.raises(StreamConfigError, match=f"unavailable_value_placeholder: .*, got '{setting}'"):
        read_changes([], "debezium-json", ["id"], setting)
    with pytest.raises(StreamConfigError, match="expected None for 'canal-json'"):
        read_changes([], "canal-json", ["id"], "x")


@pytest.mark.parametrize(
    ("record", "column", "said"),
    [
        (b"\xff", None, "not text in UTF-8"),
        ("{", None, "not JSON"),
        ("", None, "not JSON"),
        ("[" * 100_000, None, "not JSON"),
        ("[1]", None, "expected a JSON object, got list"),
        (7, None, "expected bytes, str, a mapping or None, got int"),
        ({"id": 1}, None, "lacks the field 'op'"),
        ({"payload": 3}, "payload", "expected an object, got int"),
        (event("x"), "op", "expected c, r, u, d, m or t, got 'x'"),
        (event("t"), None, "truncated"),
        (event("c"), "after", "the row is missing"),
        (event("u", SCOOTER), "after", "the row is missing"),
        (event("d"), "before", "the row is missing"),
        (event("c", None, '{"_id": 1}'), "after", "expected an object of columns, got str"),
    ],
)
def test_records_that_cannot_be_read(record: Any, column: str | None, said: str) -> None:
    with pytest.raises(BadChangeError, match=said) as caught:
        read_changes([event("c", None, SCOOTER), record], "debezium-json", ["id"])
    assert (caught.value.record, caught.value.column) == (2, column)
