"""Change records through a writer: all of a call or nothing, and columns that come in the midst of a commit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from pypaimon import Schema

from pypaimon.streaming import StreamConfigError, stream_read_builder, stream_write_builder
from pypaimon.streaming.errors import BadChangeError, BadRowError
from pypaimon.streaming.paimon.internals import AtomicType, DataField
from support.tables.handles import batch_read, catalog_with_database, read_with
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table


def insert(**row: Any) -> bytes:
    return json.dumps({"op": "c", "before": None, "after": row}).encode()


def update(before: dict[str, Any], after: dict[str, Any]) -> bytes:
    return json.dumps({"op": "u", "before": before, "after": after}).encode()


def delete(**row: Any) -> bytes:
    return json.dumps({"op": "d", "before": row, "after": None}).encode()


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return key_value_table(tmp_path, **{"bucket": "1", "changelog-producer": "input"})


def changelog(table: Table) -> list[tuple[Any, ...]]:
    builder = stream_read_builder(table.handle()).with_start("earliest").with_end(latest=True)
    return [tuple(row.values()) for row in read_with(builder)]


HISTORY = [
    insert(k=1, v="a"),
    insert(k=2, v="b"),
    update({"k": 1, "v": "a"}, {"k": 1, "v": "c"}),
    update({"k": 2, "v": "b"}, {"k": 3, "v": "b"}),
    None,
    delete(k=1, v="c"),
]
CHANGELOG = [
    ("+I", 1, "a"),
    ("-U", 1, "a"),
    ("+U", 1, "c"),
    ("-D", 1, "c"),
    ("+I", 2, "b"),
    ("-D", 2, "b"),
    ("+I", 3, "b"),
]


def test_what_changed_there_changes_here(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write_changes(HISTORY, "debezium-json")
        writer.commit(properties={"offsets": "17"})
    assert table.rows() == [(3, "b")]
    assert sorted(changelog(table), key=lambda row: (row[1], CHANGELOG.index(row))) == CHANGELOG
    with table.writer().open_sync() as writer:
        assert writer.committed_properties["offsets"] == "17"


def test_the_same_with_asyncio(table: Table) -> None:
    async def run() -> None:
        async with table.writer().open() as writer:
            await writer.write_changes(iter(HISTORY), "debezium-json")
            await writer.commit()

    asyncio.run(run())
    assert table.rows() == [(3, "b")]


def test_nothing_of_a_call_is_taken_if_one_record_is_bad(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write_changes([insert(k=1, v="a")], "debezium-json")
        with pytest.raises(BadChangeError, match="record 2, column 'k'"):
            writer.write_changes([insert(k=2, v="b"), insert(k="x", v="b")], "debezium-json")
        with pytest.raises(BadRowError, match="'k'"):
            writer.write_changes([insert(k=2, v="b"), insert(k=None, v="b")], "debezium-json")
        with pytest.raises(BadChangeError, match="record 1, column 'new'"):
            writer.write_changes([insert(k=2, v="b", new=1)], "debezium-json")
        with pytest.raises(StreamConfigError, match="several records"):
            writer.write_changes(insert(k=2, v="b"), "debezium-json")  # type: ignore[arg-type]
        writer.write_changes([insert(k=3, v="c", new=1)], "debezium-json", on_new_column="ignore")
        writer.write_changes([None], "debezium-json")
        writer.commit()
    assert table.rows() == [(1, "a"), (3, "c")]


def test_columns_are_added_in_the_middle_of_a_commit(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write_changes([insert(k=1, v="a"), insert(k=2, v="b")], "debezium-json")
        writer.write_changes([insert(k=2, v="x", n=5), insert(k=4, v="d")], "debezium-json", on_new_column="add")
        writer.write_changes([insert(k=3, v="c", n=None, flag=True)], "debezium-json", on_new_column="add")
        assert writer.commit().snapshot_id == 1
        writer.write_changes([delete(k=1, v="a", n=None, flag=None)], "debezium-json")
        writer.commit()
    assert table.ids() == [1, 2]
    assert table.rows() == [(2, "x", 5, None), (3, "c", None, True), (4, "d", None, None)]


def test_types_are_made_wider_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path)
    columns = [
        DataField(0, "id", AtomicType("INT", False)),
        DataField(1, "n", AtomicType("INT")),
        DataField(2, "s", AtomicType("VARCHAR(2)")),
    ]
    catalog.create_table("db.t", Schema(fields=columns, primary_keys=["id"], options={"bucket": "1"}), False)
    with stream_write_builder(catalog.get_table("db.t")).open_sync() as writer:
        writer.write_changes([insert(id=1, n=1, s="ab")], "debezium-json")
        writer.write_changes([insert(id=2, n=2**40, s="abc")], "debezium-json", on_new_column="add")
        with pytest.raises(BadChangeError, match="record 1, column 'id'"):
            writer.write_changes([insert(id=2**40, n=1, s="")], "debezium-json", on_new_column="add")
        writer.commit()
    found = batch_read(catalog.get_table("db.t"))
    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1, "n": 1, "s": "ab"}, {"id": 2, "n": 2**40, "s": "abc"}]


def test_a_table_without_a_key_takes_inserts(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, keyed=False)
    with table.writer().open_sync() as writer:
        writer.write_changes([insert(k=1, v="a")], "debezium-json")
        with pytest.raises(BadChangeError, match="without a primary key"):
            writer.write_changes([delete(k=1, v="a")], "debezium-json")
        writer.commit()
    assert table.rows() == [(1, "a")]


def test_kinds_go_into_the_column_that_the_table_names(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path)
    columns = [DataField(0, "id", AtomicType("INT", False)), DataField(1, "kind", AtomicType("STRING"))]
    options = {"bucket": "1", "rowkind.field": "kind"}
    catalog.create_table("db.t", Schema(fields=columns, primary_keys=["id"], options=options), False)
    with stream_write_builder(catalog.get_table("db.t")).open_sync() as writer:
        writer.write_changes([insert(id=1), insert(id=2), delete(id=1)], "debezium-json")
        writer.commit()
    assert batch_read(catalog.get_table("db.t")) == [{"id": 2, "kind": "+I"}]


def test_rows_after_a_new_column_win_though_others_committed_meanwhile(table: Table) -> None:
    with table.writer().open_sync() as writer:
        writer.write_changes([insert(k=1, v=str(number)) for number in range(9)], "debezium-json")
        with table.writer("other").open_sync() as other:
            other.write_changes([insert(k=2, v="b")], "debezium-json")
            other.commit()
        writer.write_changes([insert(k=1, v="last", w="new")], "debezium-json", on_new_column="add")
        writer.commit()
    assert table.rows() == [(1, "last", "new"), (2, "b", None)]


@pytest.mark.parametrize("policy", ["fail", "ignore", "add"])
def test_columns_match_without_case_as_those_of_rows(tmp_path: Path, policy: Any) -> None:
    """With "ignore" their values would be lost, with "add" they would be in new columns."""
    table = key_value_table(tmp_path, bucket="1")
    types = {"schema": {"fields": [{"field": "after", "fields": [{"field": "K", "type": "int64"}]}]}}
    first = {**types, "payload": {"op": "c", "before": None, "after": {"K": 1, "V": "a"}}}
    with table.writer().open_sync() as writer:
        writer.write_changes([first, insert(K=2, v="b")], "debezium-json", on_new_column=policy)
        writer.write_changes([update({"K": 2, "V": "b"}, {"K": 3, "V": "c"})], "debezium-json", on_new_column=policy)
        writer.commit()
        # The column of exactly that name is meant, and the other one is unknown.
        with pytest.raises(BadChangeError, match=r"column 'V'.*lacks this column"):
            writer.write_changes([insert(k=4, v="a", V="b")], "debezium-json")
    assert table.rows() == [(1, "a"), (3, "c")]
    assert [field.name for field in table.handle().fields] == ["k", "v"]
