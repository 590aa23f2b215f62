"""A catalog publishes snapshots, and arbitrates: who was slower comes after the other one, lost answers are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon.catalog.catalog_environment import CatalogEnvironment
from pypaimon.common.json_util import JSON

from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.commit.idempotent_commit import commit_once
from pypaimon.streaming.commit.request import CommitReport, CommitRequest
from pypaimon.streaming.commit.session import CommitSession
from pypaimon.streaming.errors import CommitFailedError
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support.tables.handles import catalog_with_database, create_table
from support.tables.written_rows import write

COLUMNS = pa.schema([("dt", pa.date32()), ("v", pa.int64())])


class Publishing:
    """What a REST catalog does with snapshots: it takes the one that follows the latest, and keeps count.

    Attributes:
        asked: Statistics of each snapshot that was published.
        before: What happens before the next one is published.
        loses_answers: Whether the caller is told of an error though it was done.
        knows_uuids: Whether snapshots are stored as they came; Java 1.x stores them without their `uuid`.
    """

    def __init__(self, table: Any) -> None:
        self._home = Path(str(table.table_path)) / "snapshot"
        self._latest: Any = None
        self.asked: list[list[Any]] = []
        self.before: Callable[[], object] = lambda: None
        self.loses_answers = False
        self.knows_uuids = True

    def load(self) -> Publishing:
        return self

    def close(self) -> None:
        """Nothing is open."""

    def load_snapshot(self, _identifier: Any) -> Any:
        return self._latest

    def commit_snapshot(self, _identifier: Any, _uuid: Any, base: str | None, snapshot: Any, statistics: Any) -> bool:
        before, self.before = self.before, lambda: None
        before()
        latest = self._latest and self._latest.id
        if base != (self._latest and self._latest.uuid) or snapshot.id != (latest or 0) + 1:
            return False
        self._latest = snapshot = snapshot if self.knows_uuids else replace(snapshot, uuid=None)
        self._home.mkdir(exist_ok=True)
        (self._home / f"snapshot-{snapshot.id}").write_text(JSON.to_json(snapshot))
        self.asked.append(statistics)
        if self.loses_answers:
            raise RuntimeError("the answer was lost")
        return True


@pytest.fixture
def table(tmp_path: Path) -> Any:
    """A table in partitions of days whose snapshots a catalog publishes."""
    catalog = catalog_with_database(tmp_path)
    found = create_table(catalog, "t", COLUMNS, partition_keys=["dt"])
    environment = CatalogEnvironment(found.identifier, None, Publishing(found), True)
    found.catalog_environment = _Loading(environment)
    return found


class _Loading(CatalogEnvironment):  # type: ignore[misc]
    """An environment whose latest snapshot the catalog tells as it is, without a REST client around it."""

    def __init__(self, other: CatalogEnvironment) -> None:
        super().__init__(other.identifier, other.uuid, other.catalog_loader, other.supports_version_management)

    def snapshot_loader(self) -> Any:
        loads = self.catalog_loader

        class Loader:
            def load(self) -> Any:
                return loads.load_snapshot(None)

        return Loader()


def commit(
    table: Any,
    identifier: int,
    *rows: tuple[int | None, int],
    user: str = "query",
    session: CommitSession | None = None,
) -> CommitReport:
    batch = pa.RecordBatch.from_pylist([{"dt": day, "v": value} for day, value in rows], COLUMNS)
    messages = write(table, batch, user=user)
    return commit_once(CommitRequest(PaimonTable(table), user, identifier, messages), session)


def kept(table: Any) -> list[tuple[str, int]]:
    """User and identifier of each snapshot."""
    found = TableDirectory.of(table).snapshots.list_snapshots()
    return [(each.commit_user, each.commit_identifier) for each in found]


def test_the_catalog_gets_the_snapshot_and_counts_by_partition(table: Any) -> None:
    publishing: Publishing = table.catalog_environment.catalog_loader
    session = CommitSession()
    assert commit(table, 0, (19_000, 1), (19_000, 2), (None, 3), session=session).snapshot_id == 1
    assert commit(table, 1, (19_001, 4), session=session).snapshot_id == 2
    counts = [{(each.spec["dt"], each.record_count, each.file_count) for each in found} for found in publishing.asked]
    assert counts == [{("19000", 2, 1), ("__DEFAULT_PARTITION__", 1, 1)}, {("19001", 1, 1)}]
    assert all(each.file_size_in_bytes > 0 and each.last_file_creation_time > 0 for each in publishing.asked[0])
    assert kept(table) == [("query", 0), ("query", 1)]


@pytest.mark.parametrize("goes_on", [True, False])
def test_the_slower_commit_comes_after_the_other_one(table: Any, goes_on: bool) -> None:
    publishing: Publishing = table.catalog_environment.catalog_loader
    session = CommitSession()
    commit(table, 0, (1, 1), session=session)
    publishing.before = lambda: commit(table, 0, (2, 2), user="other")
    assert commit(table, 1, (3, 3), session=session if goes_on else None).snapshot_id == 3
    assert kept(table) == [("query", 0), ("other", 0), ("query", 1)]
    latest = TableDirectory.of(table).snapshots.get_latest_snapshot()
    assert latest is not None and latest.total_record_count == 3


def test_a_lost_answer_of_the_catalog_is_found(table: Any) -> None:
    publishing: Publishing = table.catalog_environment.catalog_loader
    publishing.loses_answers = True
    report = commit(table, 0, (1, 1))
    assert (report.snapshot_id, report.repeated) == (1, False)
    assert commit(table, 0, (1, 1)).repeated and kept(table) == [("query", 0)]


def test_a_twin_that_was_faster_is_found(table: Any) -> None:
    publishing: Publishing = table.catalog_environment.catalog_loader
    commit(table, 0, (1, 1))
    publishing.before = lambda: commit(table, 1, (2, 2))
    report = commit(table, 1, (2, 2))
    assert (report.snapshot_id, report.repeated) == (2, True)
    assert kept(table) == [("query", 0), ("query", 1)]


def test_files_stay_where_a_catalog_says_nothing_clear(table: Any) -> None:
    publishing: Publishing = table.catalog_environment.catalog_loader
    quick = table.copy_without_time_travel({"commit.max-retries": "1", "commit.min-retry-wait": "1 ms"})
    quick.catalog_environment = table.catalog_environment
    files = set(Path(str(table.table_path)).rglob("*.parquet"))

    def fail() -> None:
        publishing.before = fail
        raise RuntimeError("no")

    publishing.before = fail
    with pytest.raises(CommitFailedError, match="may have been committed all the same; its files are kept"):
        commit(quick, 0, (1, 1))
    publishing.before = lambda: None
    assert kept(table) == [] and len(set(Path(str(table.table_path)).rglob("*.parquet")) - files) == 1
    assert not commit(table, 0, (1, 1)).repeated


# A catalog that stores fewer fields


@pytest.fixture
def rewritten(table: Any) -> Any:
    """The table, whose snapshots the catalog stores with the fields that Java 1.x knows."""
    table.catalog_environment.catalog_loader.knows_uuids = False
    return table


def row(number: int) -> pa.Table:
    return pa.table({"dt": [None], "v": [number]}, COLUMNS)


@pytest.mark.slow
def test_two_writers_take_turns(rewritten: Any) -> None:
    one, two = (stream_write_builder(rewritten).with_commit_user(user).open_sync() for user in ("one", "two"))
    with one, two:
        for number, each in enumerate((one, one, two, one, two, two, one)):
            each.write(row(number))
            assert each.commit().snapshot_id == number + 1
    assert [user for user, _ in kept(rewritten)] == ["one", "one", "two", "one", "two", "two", "one"]


@pytest.mark.slow
def test_a_writer_continues_after_a_restart(rewritten: Any) -> None:
    """Also if the record of its commits was written by a later commit of the session."""
    number = 0
    for commits in (1, 5, 9, 2):
        with stream_write_builder(rewritten).with_commit_user("job").open_sync() as opened:
            assert opened.last_committed == (number or None)
            for _ in range(commits):
                number += 1
                opened.write(row(number))
                opened.commit(number)
    assert kept(rewritten) == [("job", each + 1) for each in range(number)]
