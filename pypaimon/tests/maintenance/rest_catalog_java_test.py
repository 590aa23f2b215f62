"""Maintenance of tables of Java's REST catalog, which manages snapshots and branches itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

from pypaimon.streaming import MaintenancePolicy, StreamConfigError, maintain
from pypaimon.streaming.maintenance import (
    create_branch,
    create_tag,
    delete_branch,
    delete_tag,
    drop_partitions,
    fast_forward,
    list_partitions,
    list_tags,
    rename_branch,
    rollback,
)
from support.java.rest_catalog import JavaRestCatalog
from support.stores.fault_file_io import FaultFileIO
from support.tables.handles import sorted_rows, write_by_stream
from support.tables.named_files import files_of, needed_files

pytestmark = [pytest.mark.java, pytest.mark.slow]

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
LATEST_ONLY = MaintenancePolicy(min_snapshots=1, max_snapshots=1)


class RestTable:
    """A table of the catalog, with five snapshots; also reached by its files."""

    def __init__(self, catalog: Any, warehouse: Path) -> None:
        self._catalog = catalog
        self._files = CatalogFactory.create({"warehouse": str(warehouse)})
        self._name = f"db.t{uuid4().hex}"
        catalog.create_database("db", True)
        schema = Schema.from_pyarrow_schema(COLUMNS, primary_keys=["k"], options={"bucket": "1"})
        catalog.create_table(self._name, schema, False)
        self.path = Path(self.handle().table_path)
        for key in range(5):
            self.commit(key)

    def handle(self, file_io: Any = None) -> Any:
        table = self._catalog.get_table(self._name)
        if file_io is not None:
            table.file_io = file_io
        return table

    def commit(self, key: int, branch: str | None = None) -> None:
        """Commit a row; to a branch by its files, because the catalog does not know its latest snapshot."""
        table = self.handle() if branch is None else self._files.get_table(f"{self._name}$branch_{branch}")
        write_by_stream(table, pa.table({"k": [key], "v": ["x"]}, schema=COLUMNS))

    def keys(self) -> list[int]:
        return [row[0] for row in sorted_rows(self.handle())]

    def ids(self) -> list[int]:
        return sorted(int(path.name.rpartition("-")[2]) for path in (self.path / "snapshot").glob("snapshot-*"))


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[JavaRestCatalog, Path]]:
    warehouse = tmp_path_factory.mktemp("lake")
    with JavaRestCatalog(warehouse) as found:
        yield found, warehouse


@pytest.fixture
def table(rest: tuple[JavaRestCatalog, Path]) -> RestTable:
    return RestTable(CatalogFactory.create(rest[0].options), rest[1])


def test_the_catalog_rolls_back_and_no_file_is_touched_here(table: RestTable) -> None:
    create_tag(table.handle(), "late", snapshot=5)
    file_io = FaultFileIO()
    planned = rollback(table.handle(file_io), snapshot_id=3, dry_run=True)
    assert table.ids() == [1, 2, 3, 4, 5]
    report = rollback(table.handle(file_io), snapshot_id=3)
    assert report.deleted_snapshots == planned.deleted_snapshots == (4, 5) and report.deleted_tags == ("late",)
    assert not {"write", "delete"} & {*file_io.counts()}
    assert table.ids() == [1, 2, 3] and table.keys() == [0, 1, 2] and not list_tags(table.handle())
    table.commit(9)
    assert table.keys() == [0, 1, 2, 9]


def test_the_catalog_restores_an_expired_snapshot_from_its_tag(table: RestTable) -> None:
    create_tag(table.handle(), "kept", snapshot=2)
    assert maintain(table.handle(), LATEST_ONLY).plan.snapshot_ids == (
        1,
        2,
        3,
        4,
    )
    file_io = FaultFileIO()
    assert rollback(table.handle(file_io), tag="kept").restored
    assert not {"write", "delete"} & {*file_io.counts()}
    assert table.ids() == [2] and table.keys() == [0, 1]


def test_the_catalog_commits_an_earlier_state_again(table: RestTable) -> None:
    report = rollback(table.handle(), snapshot_id=2, as_latest=True)
    assert report.latest_id == 6 and report.holding_tag is None
    assert table.keys() == [0, 1] and table.ids() == [1, 2, 3, 4, 5, 6]
    maintain(table.handle(), LATEST_ONLY)
    assert table.keys() == [0, 1] and files_of(table.path) == needed_files(table.path)


def test_the_catalog_manages_branches(table: RestTable) -> None:
    create_tag(table.handle(), "fork", snapshot=2)
    create_branch(table.handle(), "a", tag="fork")
    with pytest.raises(StreamConfigError):
        create_branch(table.handle(), "a", tag="fork")
    rename_branch(table.handle(), "a", "b")
    table.commit(50, branch="b")
    delete_tag(table.handle(), "fork")
    maintain(table.handle(), LATEST_ONLY)
    assert needed_files(table.path) <= files_of(table.path), "the branch needs what main does not"
    with pytest.raises(StreamConfigError, match="would lose"):
        fast_forward(table.handle(), "b")
    file_io = FaultFileIO()
    report = fast_forward(table.handle(file_io), "b", discard_own_commits=True)
    assert 3 in report.copied_snapshots and not {"write", "delete"} & {*file_io.counts()}
    assert table.ids()[-1] == 3
    delete_branch(table.handle(), "b")
    assert not (table.path / "branch" / "branch-b").exists()


def test_tags_and_maintenance_are_those_of_any_table(table: RestTable) -> None:
    create_tag(table.handle(), "kept", snapshot=3)
    report = maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1, compact=True))
    assert table.ids() == [report.plan.latest_id] and table.keys() == [0, 1, 2, 3, 4]
    assert files_of(table.path) == needed_files(table.path)
    delete_tag(table.handle(), "kept")
    assert files_of(table.path) == needed_files(table.path)
    table.commit(7)
    assert table.keys() == [0, 1, 2, 3, 4, 7]


def test_the_catalog_drops_the_partitions_that_expire(rest: tuple[JavaRestCatalog, Path], caplog: Any) -> None:
    """Java drops them by the catalog if it has them (`metastore.partitioned-table`): a REST catalog, by their files."""
    catalog, name = CatalogFactory.create(rest[0].options), f"db.t{uuid4().hex}"
    catalog.create_database("db", True)
    columns = pa.schema([("day", pa.string()), ("v", pa.int64())])
    options = {"metastore.partitioned-table": "true", "partition.expiration-time": "90 d"}
    catalog.create_table(name, Schema.from_pyarrow_schema(columns, partition_keys=["day"], options=options), False)
    days = ["2020-01-01", "2020-01-02", "2999-01-01", "2999-01-02"]
    write_by_stream(catalog.get_table(name), pa.table({"day": days, "v": [1, 2, 3, 4]}))

    def listed() -> list[str]:
        return sorted(each.spec["day"] for each in catalog.list_partitions_paged(name).elements)

    assert listed() == days
    maintain(catalog.get_table(name))
    assert listed() == days[2:]
    drop_partitions(catalog.get_table(name), {"day": days[3]})
    assert listed() == days[2:3] == [each.values["day"] for each in list_partitions(catalog.get_table(name))]
    assert "metastore" not in caplog.text
