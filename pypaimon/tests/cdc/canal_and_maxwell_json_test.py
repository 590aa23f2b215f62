"""Canal's and Maxwell's messages: rows and kinds, what they say of types, what is passed over and what refused."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from pypaimon.streaming.cdc.change_reader import read_changes
from pypaimon.streaming.cdc.mysql_json import CanalJson
from pypaimon.streaming.errors import BadChangeError
from support.tables.change_rows import changed, fields

PRODUCTS = fields(id="BIGINT NOT NULL", name="STRING", weight="DOUBLE")
TYPES = {"id": "INTEGER", "name": "VARCHAR(255)", "weight": "FLOAT"}


def canal(kind: str, data: Any, old: Any = None, types: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {
        "data": data,
        "database": "inventory",
        "es": 1589373560000,
        "id": 9,
        "isDdl": False,
        "mysqlType": TYPES if types is None else types,
        "old": old,
        "pkNames": ["id"],
        "sql": "",
        "table": "products",
        "ts": 1589373560798,
        "type": kind,
        **more,
    }


def maxwell(kind: str, data: Any = None, old: Any = None) -> dict[str, Any]:
    content = {"database": "test", "table": "e", "type": kind, "ts": 1477053217, "xid": 23396, "commit": True}
    return content | {name: each for name, each in (("data", data), ("old", old)) if each is not None}


def test_canal_holds_several_rows_and_what_changed_of_them() -> None:
    rows = [{"id": "111", "name": "scooter", "weight": "5.18"}, {"id": "112", "name": None, "weight": "0.5"}]
    records = [
        canal("INSERT", rows),
        canal("UPDATE", rows, [{"weight": "5.15"}, {"name": "battery", "weight": None}]),
        canal("UPDATE", rows[:1], [{"id": "110"}]),
        canal("DELETE", rows[1:]),
    ]
    assert changed(records, "canal-json", PRODUCTS) == [
        ("+I", 111, "scooter", 5.18),
        ("+I", 112, None, 0.5),
        ("-U", 111, "scooter", 5.15),
        ("+U", 111, "scooter", 5.18),
        ("-U", 112, "battery", None),
        ("+U", 112, None, 0.5),
        ("-D", 110, "scooter", 5.18),
        ("+I", 111, "scooter", 5.18),
        ("-D", 112, None, 0.5),
    ]


def test_the_values_of_canal_are_text() -> None:
    row = {
        "id": "1",
        "flag": "1",
        "day": "2026-11-21",
        "at": "2026-11-21 10:00:00.5",
        "sum": "12.30",
        "raw": "\x00\xff",
    }
    columns = fields(id="INT", flag="BOOLEAN", day="DATE", at="TIMESTAMP(3)", sum="DECIMAL(10, 2)", raw="BYTES")
    assert changed([canal("INSERT", [row])], "canal-json", columns) == [
        ("+I", 1, True, date(2026, 11, 21), datetime(2026, 11, 21, 10, 0, 0, 500000), Decimal("12.30"), b"\x00\xff")
    ]


@pytest.mark.parametrize(
    ("mysql", "paimon"),
    [
        ("tinyint(1)", "TINYINT"),
        ("smallint unsigned", "INT"),
        ("int(11)", "INT"),
        ("INTEGER", "INT"),
        ("int(10) unsigned zerofill", "BIGINT"),
        ("bigint(20)", "BIGINT"),
        ("bigint(20) unsigned", "DECIMAL(20, 0)"),
        ("decimal(10,2)", "DECIMAL(10, 2)"),
        ("numeric", "DECIMAL(10, 0)"),
        ("decimal(65,30)", "STRING"),
        ("double", "DOUBLE"),
        ("date", "DATE"),
        ("datetime(6)", "TIMESTAMP(6)"),
        ("timestamp", "TIMESTAMP(0)"),
        ("time(3)", "STRING"),
        ("longblob", "BYTES"),
        ("varbinary(16)", "BYTES"),
        ("binary(16)", "BYTES"),
        ("varchar(255)", "STRING"),
        ("enum('a','b')", "STRING"),
        ("json", "STRING"),
        ("geometry", "STRING"),
        ("", "STRING"),
    ],
)
def test_the_types_of_mysql(mysql: str, paimon: str) -> None:
    assert CanalJson().declared({"c": mysql})["c"].type == paimon


@pytest.mark.parametrize("kind", ["CREATE", "ALTER", "QUERY"])
def test_statements_of_canal_that_change_no_row_are_passed_over(kind: str) -> None:
    assert changed([canal(kind, None, isDdl=True)], "canal-json", PRODUCTS) == []


@pytest.mark.parametrize(
    ("record", "column", "said"),
    [
        (canal("TRUNCATE", None, isDdl=True), None, "TRUNCATE does not change single rows"),
        (canal("RENAME", None, isDdl=True), None, "RENAME does not change single rows"),
        (canal("MERGE", []), "type", "expected INSERT, UPDATE or DELETE, got 'MERGE'"),
        ({"type": None}, "type", "got None"),
        (canal("INSERT", None), "data", "the rows are missing"),
        (canal("INSERT", {"id": 1}), "data", "expected a list of objects"),
        (canal("UPDATE", [{"id": 1}]), "old", "what each row of 'data' held"),
        (canal("UPDATE", [{"id": 1}, {"id": 2}], [{"id": 0}]), "old", "what each row of 'data' held"),
    ],
)
def test_messages_of_canal_that_are_refused(record: Any, column: str | None, said: str) -> None:
    with pytest.raises(BadChangeError, match=said) as caught:
        read_changes([record], "canal-json", ["id"])
    assert (caught.value.record, caught.value.column) == (1, column)


def test_maxwell_reports_what_changed() -> None:
    row = {"id": 1, "name": "I am a creature of light.", "weight": 4.2341}
    records = [
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", {**row, "id": 2}),
        maxwell("bootstrap-complete", {}),
        maxwell("insert", row),
        maxwell("update", {**row, "weight": 5.444}, {"weight": 4.2341}),
        maxwell("update", {**row, "id": 3}, {"id": 1}),
        maxwell("delete", {**row, "id": 3}),
        maxwell("table-alter"),
    ]
    text = row["name"]
    assert changed(records, "maxwell-json", PRODUCTS) == [
        ("+I", 2, text, 4.2341),
        ("+I", 1, text, 4.2341),
        ("-U", 1, text, 4.2341),
        ("+U", 1, text, 5.444),
        ("-D", 1, text, 4.2341),
        ("+I", 3, text, 4.2341),
        ("-D", 3, text, 4.2341),
    ]


def test_ticdc_has_the_deleted_row_in_old() -> None:
    row = {"id": 3, "name": "I am a creature of light.", "weight": 5.444}
    for data in (None, {}):
        deleted = maxwell("delete", data, row)
        assert changed([deleted], "maxwell-json", PRODUCTS) == [("-D", 3, row["name"], 5.444)]
    with pytest.raises(BadChangeError, match="record 1, column 'data': the row is missing"):
        read_changes([maxwell("delete")], "maxwell-json", ["id"])


def test_numbers_of_maxwell_keep_their_digits() -> None:
    text = '{"type":"insert","data":{"id":1,"sum":1234567890123456789.10}}'
    columns = fields(id="INT", sum="DECIMAL(38, 2)")
    assert changed([text], "maxwell-json", columns) == [("+I", 1, Decimal("1234567890123456789.10"))]


def test_wall_clocks_need_a_zone_where_the_column_has_one() -> None:
    records = [maxwell("insert", {"id": 1, "c": "2016-10-21 05:33:37.523000"})]
    columns = fields(id="INT", c="TIMESTAMP(6) WITH LOCAL TIME ZONE")
    with pytest.raises(BadChangeError, match=r"column 'c'.*no time zone.*time_zone="):
        changed(records, "maxwell-json", columns)
    assert changed(records, "maxwell-json", columns, time_zone="Europe/Berlin") == [
        ("+I", 1, datetime(2016, 10, 21, 3, 33, 37, 523000, timezone.utc))
    ]


@pytest.mark.parametrize(
    ("record", "column", "said"),
    [
        (maxwell("table-drop"), None, "table-drop does not change single rows"),
        (maxwell("replace"), "type", "got 'replace'"),
        (maxwell("insert"), "data", "the row is missing"),
        (maxwell("update", {"id": 1}), "old", "the row is missing"),
    ],
)
def test_messages_of_maxwell_that_are_refused(record: Any, column: str | None, said: str) -> None:
    with pytest.raises(BadChangeError, match=said) as caught:
        read_changes([record], "maxwell-json", ["id"])
    assert (caught.value.record, caught.value.column) == (1, column)
