"""Schemas that change under a running stream, and what each policy makes of it, end to end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pypaimon.common.predicate import Predicate
from pypaimon.schema.data_types import AtomicType, PyarrowFieldParser
from pypaimon.schema.schema_change import Move, SchemaChange

from pypaimon.streaming import SchemaChangedError, stream_read_builder
from support.tables.handles import create_table, read_with
from support.tables.stream_files import write

pytestmark = pytest.mark.slow

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("v", pa.string()),
        ("n", pa.int32()),
        ("r", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
FIRST = {"id": 1, "v": "a", "n": 10, "r": {"x": 5, "y": "p"}}
SECOND = {"id": 2, "v": "b", "n": 20, "r": {"x": 6, "y": "q"}}
BIGINT, STRING = AtomicType("BIGINT"), AtomicType("STRING")

rename, drop = SchemaChange.rename_column, SchemaChange.drop_column
CHANGES = {
    "add": (SchemaChange.add_column("more", STRING), SECOND | {"more": "m"}),
    "drop": (drop("v"), {name: value for name, value in SECOND.items() if name != "v"}),
    "rename": (rename("v", "w"), {"id": 2, "w": "b", "n": 20, "r": SECOND["r"]}),
    "reorder": (SchemaChange.update_column_position(Move.first("n")), {"n": 20} | SECOND),
    "widen": (SchemaChange.update_column_type("n", BIGINT), SECOND | {"n": 1 << 40}),
    "nested": (rename(["r", "x"], "z"), SECOND | {"r": {"z": 6, "y": "q"}}),
}


class Stream:
    """A stream that has read a first row of a table, which is then changed under it."""

    def __init__(self, warehouse: Any, policy: str, **arguments: Any) -> None:
        self.warehouse, self.plans = warehouse, 0
        options = {"metadata.stats-mode": "full"} | arguments.pop("options", {})
        self.table = create_table(warehouse, "t", COLUMNS, options=options, **arguments)
        self.append(FIRST)
        self.builder = stream_read_builder(self.table).with_on_schema_change(policy).with_include_row_kind(False)

    def start(self) -> Stream:
        self.scan, self.read = self.builder.new_streaming_scan(), self.builder.new_read()
        self.next_rows()
        return self

    def change(self, *changes: SchemaChange) -> Stream:
        self.warehouse.alter_table("db.t", list(changes), False)
        self.table = self.warehouse.get_table("db.t")
        return self

    def append(self, *rows: dict[str, Any]) -> Stream:
        schema = PyarrowFieldParser.from_paimon_schema(self.table.table_schema.fields)
        write(self.table, pa.Table.from_pylist(list(rows), schema))
        return self

    def next_rows(self) -> list[dict[str, Any]]:
        while (plan := self.scan.plan()) is not None:
            self.plans += 1
            self.plan = plan
            self.rows = self.read.to_arrow(plan.splits())
            if self.rows.num_rows:
                return list(self.rows.to_pylist())
        raise AssertionError("nothing new")


def leaf(method: str, column: str, *literals: Any) -> Predicate:
    return Predicate(method, None, column, list(literals))


@pytest.mark.parametrize("change", CHANGES)
def test_fail_names_both_schemas_before_the_first_row(warehouse: Any, change: str) -> None:
    altered, row = CHANGES[change]
    stream = Stream(warehouse, "fail").start().change(altered).append(row)
    with pytest.raises(SchemaChangedError, match="changed from 0 to 1") as raised:
        stream.scan.plan()
    assert (raised.value.old, raised.value.new) == (0, 1)
    assert stream.scan.next_snapshot_id == 2


@pytest.mark.parametrize("change", CHANGES)
def test_follow_reads_with_the_newer_schema(warehouse: Any, change: str) -> None:
    altered, row = CHANGES[change]
    stream = Stream(warehouse, "follow").start().change(altered).append(row)
    assert stream.next_rows() == [row]
    assert stream.plan.schema.id == 1
    assert stream.rows.schema == PyarrowFieldParser.from_paimon_schema(stream.table.table_schema.fields)


@pytest.mark.parametrize("change", [name for name in CHANGES if name != "widen"])
def test_ignore_continues_with_the_columns_of_the_start(warehouse: Any, change: str) -> None:
    altered, row = CHANGES[change]
    stream = Stream(warehouse, "ignore").start().change(altered).append(row)
    assert stream.next_rows() == [SECOND | {"v": None} if change == "drop" else SECOND]
    assert stream.rows.schema == COLUMNS
    assert stream.plan.schema.id == 0


def test_under_ignore_a_value_that_does_not_fit_is_an_error(warehouse: Any) -> None:
    stream = Stream(warehouse, "ignore").start().change(CHANGES["widen"][0])
    assert stream.append(SECOND).next_rows() == [SECOND]
    with pytest.raises(SchemaChangedError):
        stream.append(CHANGES["widen"][1]).next_rows()


@pytest.mark.parametrize("policy", ["fail", "follow"])
def test_columns_that_are_not_read_trigger_nothing(warehouse: Any, policy: str) -> None:
    stream = Stream(warehouse, policy)
    stream.builder.with_projection(["n", "id"])
    stream.builder.with_filter(leaf("greaterThan", "n", 1))
    stream.start()
    stream.change(
        *(CHANGES[name][0] for name in ("add", "drop", "nested")),
        SchemaChange.set_option("snapshot.num-retained.max", "9"),
    )
    stream.append({"id": 2, "n": 20, "r": None, "more": None})
    assert stream.next_rows() == [{"n": 20, "id": 2}]
    assert stream.plan.schema.id == 0


@pytest.mark.parametrize("policy", ["fail", "follow"])
def test_of_a_row_only_the_fields_that_are_read_count(warehouse: Any, policy: str) -> None:
    stream = Stream(warehouse, policy)
    stream.builder.with_projection(["r.y", "id"])
    stream.start().change(rename(["r", "x"], "z"), SchemaChange.add_column(["r", "more"], STRING))
    stream.append({"id": 2, "v": None, "n": None, "r": {"z": 1, "y": "q", "more": None}})
    assert stream.next_rows() == [{"r_y": "q", "id": 2}]
    assert stream.plan.schema.id == 0


@pytest.mark.parametrize("keys", [{}, {"primary_keys": ["id"], "options": {"bucket": "1"}}], ids=["append", "keyed"])
def test_projection_and_filter_stay_with_their_fields(warehouse: Any, keys: Any) -> None:
    """Another column takes the old name: neither pruning nor the filter may look at it."""
    stream = Stream(warehouse, "follow", **keys)
    stream.builder.with_projection(["v", "id"])
    stream.builder.with_filter(leaf("equal", "v", "a"), unmatched="drop")
    stream.start().change(rename("v", "w"), SchemaChange.add_column("v", STRING))
    rest = {"n": None, "r": None}
    stream.append({"id": 2, "w": "a", "v": "other"} | rest)
    assert stream.next_rows() == [{"w": "a", "id": 2}]
    stream.append({"id": 3, "w": "other", "v": "a"} | rest).append({"id": 4, "w": "a", "v": None} | rest)
    assert stream.next_rows() == [{"w": "a", "id": 4}]
    assert stream.plans == (4 if keys else 3)  # on append tables statistics drop the third snapshot


def test_nested_projection_and_filter_stay_with_their_fields(warehouse: Any) -> None:
    stream = Stream(warehouse, "follow")
    stream.builder.with_projection(["r.x", "id"])
    stream.builder.with_filter(leaf("equal", "r.x", 5))
    stream.start()
    stream.change(rename(["r", "x"], "z"), rename("r", "row"), SchemaChange.add_column(["row", "x"], AtomicType("INT")))
    stream.append({"id": 2, "v": None, "n": 1, "row": {"z": 5, "y": None, "x": 0}})
    stream.append({"id": 3, "v": None, "n": 1, "row": {"z": 0, "y": None, "x": 5}})
    assert stream.next_rows() == [{"row_z": 5, "id": 2}]


@pytest.mark.parametrize("dropped", ["v", ["r", "x"]], ids=["column", "nested"])
def test_a_dropped_column_that_is_read_is_an_error_under_follow(warehouse: Any, dropped: Any) -> None:
    name = dropped if isinstance(dropped, str) else ".".join(dropped)
    projected = Stream(warehouse, "follow")
    projected.builder.with_projection([name, "id"])
    by_filter = stream_read_builder(projected.table).with_on_schema_change("follow").with_projection(["id"])
    by_filter.with_filter(leaf("isNotNull", name))
    scan = by_filter.new_streaming_scan()
    assert scan.plan() is not None
    projected.start().change(drop(dropped)).append({"id": 2})
    with pytest.raises(SchemaChangedError, match=r"was dropped|changed from"):
        projected.next_rows()
    with pytest.raises(SchemaChangedError, match=r"was dropped"):
        scan.plan()


def test_follow_continues_from_schema_to_schema(warehouse: Any) -> None:
    stream = Stream(warehouse, "follow")
    stream.builder.with_filter(leaf("greaterThan", "n", 5))
    stream.start()
    stream.change(rename("n", "m")).append({"id": 2, "v": None, "m": 6, "r": None})
    stream.change(rename("v", "n"), rename("m", "o")).append({"id": 3, "n": "9", "o": 1, "r": None})
    stream.append({"id": 4, "n": "0", "o": 7, "r": None})
    assert [stream.next_rows(), stream.plan.schema.id] == [[{"id": 2, "v": None, "m": 6, "r": None}], 1]
    assert [stream.next_rows(), stream.plan.schema.id] == [[{"id": 4, "n": "0", "o": 7, "r": None}], 2]


def test_far_behind_no_plan_holds_snapshots_before_and_after_a_change(warehouse: Any) -> None:
    altered, row = CHANGES["add"]
    stream = Stream(warehouse, "follow").append(FIRST).change(altered).append(row).append(row)
    stream.builder.with_start("earliest").with_catch_up("auto", after=2).with_end(latest=True)
    read = stream.builder.new_read()
    with stream.builder.new_streaming_scan() as scan:
        found = [(plan.kind, read.to_arrow(plan.splits()).to_pylist()) for plan in scan.stream_sync()]
    assert found == [("collapsed", [FIRST, FIRST]), ("delta", [row]), ("delta", [row])]


def test_what_is_followed_is_read_with_its_own_options_and_those_of_the_handle(warehouse: Any) -> None:
    stream = Stream(warehouse, "follow", options={"snapshot.num-retained.max": "8"})
    handle = stream.table.copy({"scan.ignore-lost-files": "true", "snapshot.num-retained.max": None})
    stream.builder = stream_read_builder(handle).with_on_schema_change("follow").with_include_row_kind(False)
    stream.start()
    stream.change(CHANGES["add"][0], SchemaChange.set_option("fields.more.default-value", "d"))
    stream.append(CHANGES["add"][1]).next_rows()
    own = stream.table.table_schema.options
    wanted = own | {"scan.ignore-lost-files": "true"}
    del wanted["snapshot.num-retained.max"]
    assert stream.plan.schema.options == wanted


def test_the_first_schema_is_the_latest_one_though_the_handle_travelled_back(warehouse: Any) -> None:
    altered, row = CHANGES["add"]
    table = Stream(warehouse, "fail").change(altered).append(row).table.copy({"scan.snapshot-id": "1"})
    assert table.table_schema.id == 0
    assert read_with(stream_read_builder(table).with_end(latest=True)) == [FIRST | {"more": None}, row]
