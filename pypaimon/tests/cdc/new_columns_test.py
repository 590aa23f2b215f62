"""Columns that a table lacks: refused, left out or added; types made wider where a value does not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pypaimon import Schema

from pypaimon.streaming.cdc.change_reader import ChangeRows, read_changes
from pypaimon.streaming.cdc.change_values import Reading
from pypaimon.streaming.cdc.new_columns import Alteration, alterations, altered, check_policy, refuse_new_columns
from pypaimon.streaming.errors import BadChangeError, SchemaChangeRefusedError, StreamConfigError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.paimon.internals import AtomicType
from support.tables.change_rows import fields
from support.tables.handles import catalog_with_database


def inserts(*rows: dict[str, Any]) -> list[ChangeRows]:
    return read_changes([{"type": "insert", "data": row} for row in rows], "maxwell-json", ["id"])


def needed(found: Sequence[ChangeRows], keys: Sequence[str] = ("id",), **columns: str) -> dict[str, str]:
    return {each.column: each.type for each in alterations(found, fields(**columns), keys, Reading())}


def of_mysql(types: dict[str, str], row: dict[str, Any]) -> list[ChangeRows]:
    return read_changes([{"type": "INSERT", "data": [row], "mysqlType": types}], "canal-json", ["id"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([True, None], "BOOLEAN"),
        ([1, 2**40], "BIGINT"),
        ([1, 2**63], "STRING"),
        ([1, True], "STRING"),
        ([1.5], "STRING"),
        (["a"], "STRING"),
        ([{"a": 1}], "STRING"),
    ],
)
def test_types_that_nobody_declared(values: list[Any], expected: str) -> None:
    assert needed(inserts(*({"id": 1, "new": value} for value in values)), id="INT") == {"new": expected}


def test_a_column_without_a_value_is_not_added() -> None:
    assert needed(inserts({"id": 1, "new": None}), id="INT") == {}


def test_types_that_the_records_declare() -> None:
    types = {"id": "int", "new": "decimal(10,2)", "at": "datetime(3)"}
    found = of_mysql(types, {"id": "1", "new": "1.5", "at": "2026-11-21 10:00:00"})
    assert needed(found, id="INT") == {"new": "DECIMAL(10, 2)", "at": "TIMESTAMP(3)"}
    changed_type = [*found, *of_mysql({**types, "new": "varchar(9)"}, {"id": "1", "new": "x"})]
    assert needed(changed_type, id="INT")["new"] == "STRING"


def test_a_column_whose_numbers_change_their_unit_is_one_of_times() -> None:
    def event(name: str, kind: str = "int64") -> dict[str, Any]:
        new = {"field": "new", "type": kind, "name": name}
        schema = {"fields": [{"field": "after", "fields": [{"field": "id", "type": "int32"}, new]}]}
        return {"schema": schema, "payload": {"op": "c", "after": {"id": 1, "new": 5000}}}

    millis, micros = event("io.debezium.time.Timestamp"), event("io.debezium.time.MicroTimestamp")
    for other in (millis, event("", "int64"), {"op": "c", "after": {"id": 1, "new": 5000}}):
        found = read_changes([other, micros], "debezium-json", ["id"])
        assert needed(found, id="INT") == {"new": "TIMESTAMP(6)"}
    assert needed(read_changes([event(""), event("")], "debezium-json", ["id"]), id="INT") == {"new": "BIGINT"}


@pytest.mark.parametrize(
    ("present", "values", "expected"),
    [
        ("TINYINT", [127], None),
        ("TINYINT", [1, 128], "SMALLINT"),
        ("INT", [2**31, "-5"], "BIGINT"),
        ("INT", [2**31, 1.5], None),
        ("INT", [2**31, "x"], None),
        ("INT", [2**63], None),
        ("BIGINT", [2**63], None),
        ("DECIMAL(5, 2)", ["999.99"], None),
        ("DECIMAL(5, 2)", ["1000", "0.001"], "DECIMAL(7, 3)"),
        ("DECIMAL(38, 2)", ["0.001"], None),
        ("VARCHAR(2)", ["ab"], None),
        ("VARCHAR(2)", ["äöü"], "STRING"),
        ("CHAR(1)", [10], "STRING"),
        ("VARBINARY(1)", ["AAAA"], "BYTES"),
        ("STRING", ["long" * 9], None),
        ("DATE", ["tomorrow"], None),
    ],
)
def test_types_made_wider(present: str, values: list[Any], expected: str | None) -> None:
    found = inserts(*({"id": 1, "v": value} for value in values))
    assert needed(found, id="INT", v=present) == ({} if expected is None else {"v": expected})


def test_key_columns_keep_their_types() -> None:
    assert needed(inserts({"id": 2**40}), id="INT") == {}


def test_refused_unless_the_policy_says_more() -> None:
    found = inserts({"id": 1}, {"id": 2, "new": 1})
    with pytest.raises(BadChangeError, match=r"record 2, column 'new': db\.t lacks this column.*on_new_column='add'"):
        refuse_new_columns(found, fields(id="INT"), "db.t")
    refuse_new_columns(found, fields(id="INT", new="INT"), "db.t")
    with pytest.raises(StreamConfigError, match="on_new_column: expected 'fail', 'add' or 'ignore', got 'merge'"):
        check_policy("merge")


@pytest.fixture
def catalog(tmp_path: Path) -> Any:
    found = catalog_with_database(tmp_path)
    columns = fields(id="INT NOT NULL", v="INT NOT NULL", s="VARCHAR(3)", d="DECIMAL(5, 2)")
    found.create_table("db.t", Schema(fields=columns, primary_keys=["id"], options={"bucket": "1"}), False)
    return found


WANTED = [
    Alteration("new", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
    Alteration("v", "BIGINT", AtomicType("INT", False)),
    Alteration("s", "STRING", AtomicType("VARCHAR(3)")),
    Alteration("d", "DECIMAL(7, 3)", AtomicType("DECIMAL(5, 2)")),
]


def types(table: Any) -> dict[str, str]:
    return {field.name: str(field.type) for field in table.fields}


def test_the_catalog_alters_the_table(catalog: Any) -> None:
    table = altered(PaimonTable(catalog.get_table("db.t").copy({"write-only": "true"})), WANTED)
    assert types(table) == {
        "id": "INT NOT NULL",
        "v": "BIGINT NOT NULL",
        "s": "STRING",
        "d": "DECIMAL(7, 3)",
        "new": "TIMESTAMP(6) WITH LOCAL TIME ZONE",
    }
    assert types(catalog.get_table("db.t")) == types(table)
    assert table.options["write-only"] == "true"
    assert altered(table, WANTED).schema.id == table.schema.id


def test_what_others_altered_meanwhile_stays(catalog: Any) -> None:
    stale = PaimonTable(catalog.get_table("db.t"))
    altered(stale, [Alteration("v", "BIGINT", AtomicType("INT", False)), Alteration("new", "STRING")])
    table = altered(stale, WANTED)
    assert (types(table)["new"], types(table)["d"]) == ("STRING", "DECIMAL(7, 3)")


def test_a_refusal_of_the_catalog_is_reported(catalog: Any) -> None:
    table = PaimonTable(catalog.get_table("db.t"))
    with pytest.raises(SchemaChangeRefusedError, match=r"db\.t could not get column 'v' as DATE: "):
        altered(table, [Alteration("v", "DATE", AtomicType("INT", False))])
