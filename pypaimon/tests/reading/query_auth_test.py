"""Row filters and column masks of a catalog, for every kind of plan."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.catalog.catalog_environment import CatalogEnvironment
from pypaimon.catalog.catalog_exception import TableNoPermissionException
from pypaimon.catalog.table_query_auth import TableQueryAuthResult
from pypaimon.common.predicate import Predicate
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange
from pypaimon.table.file_store_table import FileStoreTable

from pypaimon.streaming import CorruptTableError, UnsupportedTableError, stream_read_builder
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.model.plan import SplitMode
from pypaimon.streaming.options.stream_options import Unmatched
from support.tables.handles import create_table
from support.tables.stream_files import put, reader, records, split, write

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int32(), False),
        ("v", pa.string()),
        ("level", pa.int32()),
        ("r", pa.struct([("x", pa.int32())])),
    ]
)


class GuardedCatalog:
    """What a REST catalog adds to the tables of a warehouse: rules, and that it is asked for them."""

    def __init__(self, warehouse: Any) -> None:
        self.warehouse = warehouse
        self.filter: list[str] = []
        self.masks: dict[str, str] = {}
        self.asked: list[list[str]] = []
        self.failures: list[Exception] = []

    def load(self) -> GuardedCatalog:
        return self

    def table(self, name: str) -> Any:
        """The table as this catalog hands it out."""
        plain = self.warehouse.get_table(name)
        environment = CatalogEnvironment(plain.identifier, None, catalog_loader=self)
        schema = plain.table_schema.copy(new_options=plain.table_schema.options | {"query-auth.enabled": "true"})
        return FileStoreTable(plain.file_io, plain.identifier, plain.table_path, schema, environment)

    def get_table(self, identifier: Any) -> Any:
        return self.warehouse.get_table(identifier)

    def load_snapshot(self, identifier: Any) -> Any:
        raise NotImplementedError

    def auth_table_query(self, identifier: Any, select: list[str]) -> TableQueryAuthResult:
        self.asked.append(select)
        if self.failures:
            raise self.failures.pop()
        return TableQueryAuthResult(self.filter, self.masks)


def field(name: str, kind: str = "STRING") -> dict[str, Any]:
    return {"name": "FIELD_REF", "fieldRef": {"index": 0, "name": name, "type": kind}}


def at_most(name: str, value: int) -> str:
    test = {"kind": "LEAF", "transform": field(name, "INT"), "function": "LESS_OR_EQUAL", "literals": [value]}
    return json.dumps(test)


NULL = json.dumps({"name": "NULL"})
UPPER = json.dumps({"name": "UPPER", "inputs": [field("v")["fieldRef"]]})


def rows(*values: tuple[int, str | None, int | None]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"id": id, "v": v, "level": level, "r": {"x": id}} for id, v, level in values], schema=COLUMNS
    )


@pytest.fixture
def catalog(warehouse: Any) -> GuardedCatalog:
    return GuardedCatalog(warehouse)


@pytest.fixture
def append(warehouse: Any, catalog: GuardedCatalog) -> Any:
    create_table(warehouse, "append", COLUMNS)
    return catalog.table("db.append")


@pytest.fixture
def keyed(warehouse: Any, catalog: GuardedCatalog) -> Any:
    create_table(warehouse, "keyed", COLUMNS, primary_keys=["id"], options={"bucket": "1"})
    return catalog.table("db.keyed")


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def test_rules_hold_for_first_plans_and_follow_ups_and_are_asked_again(catalog: GuardedCatalog, append: Any) -> None:
    catalog.filter, catalog.masks = [at_most("level", 1)], {"v": NULL}
    write(catalog.warehouse.get_table("db.append"), rows((1, "a", 1), (2, "b", 2)))
    builder = stream_read_builder(append).with_projection(["id", "v"])
    scan, read = builder.new_streaming_scan(), builder.new_read()

    def next_rows() -> list[tuple[Any, ...]]:
        plan = scan.plan()
        assert plan is not None
        return shown(read.to_arrow(plan.splits()))

    assert next_rows() == [(1, None)]
    catalog.filter, catalog.masks = [at_most("level", 2)], {"v": UPPER}
    write(catalog.warehouse.get_table("db.append"), rows((3, "c", 2), (4, "d", 3)))
    assert next_rows() == [(3, "C")]
    assert catalog.asked == [["id", "v"], ["id", "v"]]


def test_rules_are_asked_for_once_for_each_schema_of_a_plan(catalog: GuardedCatalog, append: Any) -> None:
    catalog.filter = [at_most("level", 1)]
    files = write(catalog.warehouse.get_table("db.append"), rows((1, "a", 1), (2, "b", 2)))
    catalog.warehouse.alter_table("db.append", [SchemaChange.add_column("w", AtomicType("STRING"))], False)
    newer = catalog.warehouse.get_table("db.append").table_schema
    newer = newer.copy(new_options=newer.options | {"query-auth.enabled": "true"})
    old = [split(SplitMode.ROWS, files) for _ in range(2)]
    new = [split(SplitMode.ROWS, files, schema=newer) for _ in range(2)]
    batches = list(reader(append).iter_batches([*old, *new]))
    assert [batch["id"].to_pylist() for batch in batches] == [[1]] * 4
    assert catalog.asked == [["id", "v", "level", "r"], ["id", "v", "level", "r", "w"]]


def test_without_rules_nothing_is_left_out(catalog: GuardedCatalog, append: Any) -> None:
    files = write(catalog.warehouse.get_table("db.append"), rows((1, "a", 9)))
    assert shown(reader(append, projection=("v",)).to_arrow([split(SplitMode.ROWS, files)])) == [("+I", "a")]
    assert len(catalog.asked) == 1


def test_a_mask_reaches_into_rows_and_system_views(catalog: GuardedCatalog, append: Any) -> None:
    catalog.masks = {"r": NULL}
    plan = [split(SplitMode.ROWS, write(catalog.warehouse.get_table("db.append"), rows((1, "a", 1))))]
    assert shown(reader(append, projection=("id", "r.x")).to_arrow(plan)) == [("+I", 1, None)]
    assert shown(reader(append, projection=("r",), view="binlog").to_arrow(plan)) == [("+I", [None])]


def changes(table: Any) -> Any:
    data = rows((1, "a", 1), (1, "a", 1), (1, "b", 5), (2, "c", 5))
    return put(table, "changelog-1.parquet", records([0, 1, 2, 0], data))


def test_a_complete_changelog_retracts_what_may_no_longer_be_seen(warehouse: Any, catalog: GuardedCatalog) -> None:
    options = {"bucket": "1", "changelog-producer": "lookup"}
    create_table(warehouse, "producer", COLUMNS, primary_keys=["id"], options=options)
    table = catalog.table("db.producer")
    catalog.filter = [at_most("level", 1)]
    read = reader(table, projection=("id", "v"))
    assert shown(read.to_arrow([split(SplitMode.CHANGELOG, [changes(table)])])) == [("+I", 1, "a"), ("-U", 1, "a")]


def test_first_plans_are_filtered_after_the_merge(catalog: GuardedCatalog, keyed: Any) -> None:
    older = put(keyed, "data-1.parquet", records([0], rows((1, "seen", 1))))
    newer = put(keyed, "data-2.parquet", records([2], rows((1, "hidden", 5))).set_column(0, "_SEQUENCE_NUMBER", [[7]]))
    catalog.filter = [at_most("level", 1)]
    assert shown(reader(keyed).to_arrow([split(SplitMode.MERGE, [older, newer])])) == []
    net = split(SplitMode.NET, [newer], before_files=[older])
    assert shown(reader(keyed, projection=("id", "v")).to_arrow([net])) == [("-U", 1, "seen")]


def test_row_filters_on_values_are_refused_for_upserts(catalog: GuardedCatalog, keyed: Any) -> None:
    plan = [split(SplitMode.RECORDS, [changes(keyed)])]
    catalog.filter = [at_most("level", 1)]
    with pytest.raises(UnsupportedTableError, match="level"):
        reader(keyed).to_arrow(plan)
    dropping = reader(keyed, unmatched=Unmatched.DROP, projection=("id", "v"))
    assert shown(dropping.to_arrow(plan)) == [("+I", 1, "a"), ("-U", 1, "a")]
    catalog.filter = [at_most("id", 1)]
    assert [row[:2] for row in shown(reader(keyed).to_arrow(plan))] == [("+I", 1), ("-U", 1), ("+U", 1)]


@pytest.mark.parametrize(
    ("row_filter", "masks", "reason"),
    [
        ([at_most("gone", 1)], {}, "gone"),
        ([], {"gone": NULL}, "gone"),
        ([], {"v": json.dumps({"name": "MAGIC"})}, "MAGIC"),
        ([], {"level": UPPER}, "another type"),
        ([json.dumps({"kind": "NEW"})], {}, "NEW"),
        ([at_most("_ROW_ID", 1)], {}, "_ROW_ID"),
    ],
)
def test_what_cannot_be_enforced_is_refused(
    catalog: GuardedCatalog, append: Any, row_filter: list[str], masks: dict[str, str], reason: str
) -> None:
    catalog.filter, catalog.masks = row_filter, masks
    files = write(catalog.warehouse.get_table("db.append"), rows((1, "a", 1)))
    with pytest.raises(UnsupportedTableError, match=reason):
        reader(append).to_arrow([split(SplitMode.ROWS, files)])


def test_rules_leave_out_rows_with_their_blobs_and_cannot_look_at_these(
    warehouse: Any, catalog: GuardedCatalog
) -> None:
    columns = pa.schema([("id", pa.int32()), ("b", pa.large_binary())])
    options = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    table = create_table(warehouse, "blobs", columns, options=options)
    files = [split(SplitMode.EVOLUTION, write(table, pa.table({"id": [1, 2], "b": [b"x", b"y"]}, columns)))]
    guarded = catalog.table("db.blobs")
    catalog.filter = [at_most("id", 1)]
    assert shown(reader(guarded, include_row_kind=False).to_arrow(files)) == [(1, b"x")]
    catalog.filter, catalog.masks = [], {"b": NULL}
    with pytest.raises(UnsupportedTableError, match="they use b, whose blobs"):
        reader(guarded).to_arrow(files)


def test_a_row_whose_rule_comes_to_null_is_not_shown(catalog: GuardedCatalog, append: Any) -> None:
    catalog.filter = [at_most("level", 1)]
    files = write(catalog.warehouse.get_table("db.append"), rows((1, "a", 1), (2, "secret", None)))
    read = reader(append, projection=("id", "v"))
    assert shown(read.to_arrow([split(SplitMode.ROWS, files)])) == [("+I", 1, "a")]


@pytest.mark.parametrize(("column", "test"), [("v", ("startsWith", "v", "s")), ("r", ("equal", "r.x", 1))])
def test_a_filter_must_not_probe_masked_values(
    catalog: GuardedCatalog, append: Any, column: str, test: tuple[str, str, Any]
) -> None:
    """Nor fields inside of them."""
    catalog.masks = {column: NULL}
    files = write(catalog.warehouse.get_table("db.append"), rows((1, "secret", 1)))
    method, name, value = test
    probing = reader(append, projection=("id",), predicate=Predicate(method, None, name, [value]))
    with pytest.raises(UnsupportedTableError, match="masked"):
        probing.to_arrow([split(SplitMode.ROWS, files)])


def test_rules_on_a_column_that_was_renamed_or_added_again_are_refused(catalog: GuardedCatalog, append: Any) -> None:
    catalog.masks = {"v": NULL}
    files = write(catalog.warehouse.get_table("db.append"), rows((1, "secret", 1)))
    renamed = SchemaChange.rename_column("v", "w"), SchemaChange.add_column("v", AtomicType("STRING"))
    catalog.warehouse.alter_table("db.append", list(renamed), False)
    with pytest.raises(UnsupportedTableError, match="'v'"):
        reader(append).to_arrow([split(SplitMode.ROWS, files)])


def test_no_permission_and_failing_catalogs(catalog: GuardedCatalog, append: Any) -> None:
    plan = [split(SplitMode.ROWS, write(catalog.warehouse.get_table("db.append"), rows((1, "a", 1))))]
    catalog.failures = [TableNoPermissionException(append.identifier)]
    with pytest.raises(CorruptTableError, match="permission"):
        reader(append).to_arrow(plan)
    catalog.failures = [RuntimeError("503")]
    assert reader(append).to_arrow(plan).num_rows == 1
    catalog.failures = [RuntimeError("503")] * 5
    with pytest.raises(StoreError, match="503"):
        reader(append).to_arrow(plan)


def test_a_catalog_that_has_no_rules_to_ask_for_is_refused(warehouse: Any, append: Any) -> None:
    table = warehouse.get_table("db.append").copy({"query-auth.enabled": "true"})
    with pytest.raises(UnsupportedTableError, match="not supported"):
        reader(table).to_arrow([split(SplitMode.ROWS, write(warehouse.get_table("db.append"), rows((1, "a", 1))))])
