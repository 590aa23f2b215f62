"""`list_partitions` and `drop_partitions`. Java's rules: docs/java-semantics.md#maintenance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.commit.changes import Changes
from pypaimon.streaming.commit.conflicts import TableState
from pypaimon.streaming.commit.idempotent_commit import commit_maintenance
from pypaimon.streaming.commit.request import PartitionReplacement
from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.maintenance.partition_files import PartitionFiles, PartitionValues, all_rows, partitions_at
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_table
from pypaimon.streaming.paimon.handles import WritableTable

_LOG = StreamLog(__name__)
_warned: set[str] = set()

GivenPartition = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PartitionDrop:
    """What `drop_partitions` did.

    Attributes:
        snapshot_id: The snapshot without the partitions; None if nothing matched, or for a dry run.
        partitions: The partitions that were dropped, or would be.
    """

    snapshot_id: int | None
    partitions: tuple[PartitionValues, ...]


def list_partitions(table: WritableTable) -> list[PartitionFiles]:
    """The partitions of a table's latest snapshot, with what its manifests say about their files. Blocks.

    Raises:
        CorruptTableError: A file is damaged or missing.
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("list_partitions: table", table))
    return _latest(given) if given.partition_keys else []


def drop_partitions(
    table: WritableTable, partitions: GivenPartition | Iterable[GivenPartition], *, dry_run: bool = False
) -> PartitionDrop:
    """Delete all rows of partitions, in one commit. Blocks.

    The commit has no changelog, so streams pass over it unless they read overwrites. The files stay until the
    snapshots that need them expire. If no partition matches, nothing is committed.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it.
        partitions: Values of partition columns: of the column's type, None for null, or a text. Values of some columns
            stand for all partitions that have them; of several mappings each is dropped.
        dry_run: Commit nothing. The result says what would be dropped.

    Raises:
        StreamConfigError: A name is not a partition column, or a value does not fit; nothing was committed.
        UnsupportedTableError: It is a chain table, or its commits are not supported.
        CommitFailedError: The commit did not get through (retriable).
        StoreError: The store failed (retriable).
    """
    given = PaimonTable(a_table("drop_partitions: table", table))
    listed = [partitions] if isinstance(partitions, Mapping) else list(partitions)
    if not listed:
        raise StreamConfigError("partitions: expected at least one, got none.")
    specs = [PartitionSpec.of(given.schema, each, "partitions") for each in listed]
    check_no_chain(given, "its partitions are not dropped here")
    check_commit_options(given)
    warn_of_metastore(given)

    def chosen(found: Sequence[PartitionFiles], state: TableState) -> list[PartitionFiles]:
        rows = all_rows(found)
        matching = {row for spec in specs for row in state.matching(rows, spec)}
        return [each for each in found if matching.intersection(each.stored)]

    if dry_run:
        directory = given.new_directory()
        state = TableState(directory, directory.snapshots.get_latest_snapshot())
        found = chosen(_partitions(given, state), state)
        return PartitionDrop(None, tuple(each.values for each in found))
    return dropped(given, chosen)


def dropped(
    table: PaimonTable, chosen: Callable[[Sequence[PartitionFiles], TableState], list[PartitionFiles]]
) -> PartitionDrop:
    """Drop partitions in one commit.

    Args:
        chosen: Chooses among the partitions of the state that the commit follows; called again for each attempt.

    Raises:
        CommitFailedError: The commit did not get through (retriable).
    """
    last: list[PartitionFiles] = []

    def rows(state: TableState) -> set[bytes]:
        last[:] = chosen(_partitions(table, state), state)
        return all_rows(last)

    plan = PartitionReplacement(Changes(), rows, keep_empty=False)
    report = commit_maintenance(table, plan, f"Dropping partitions of {table.name}")
    return PartitionDrop(report.snapshot_id, tuple(each.values for each in last))


def check_no_chain(table: PaimonTable, why: str) -> None:
    """Raise UnsupportedTableError for a chain table, whose branches share their partitions."""
    if option_keys.CHAIN_TABLE_ENABLED.of(table.options):
        raise UnsupportedTableError(f"{table.name} is a chain table: {why}.", advice="Leave that to Java.")


def warn_of_metastore(table: PaimonTable) -> None:
    """Log, once in a process, that a metastore keeps partitions which are dropped here.

    Java drops the partitions of such a table by its catalog. Only Hive's catalog, which pypaimon does not have, does
    more than commit then: others keep no partitions, and a REST catalog counts what commits change.
    """
    if not option_keys.METASTORE_PARTITIONED_TABLE.of(table.options) or table.is_managed_by_catalog:
        return
    if table.path not in _warned:
        _warned.add(table.path)
        text = "partitions of %(table)s are dropped here from the table only ('%(option)s'): have Java drop them too"
        option = option_keys.METASTORE_PARTITIONED_TABLE.name
        _LOG.warning("partitions_in_metastore", text, table=table.name, option=option)


def _latest(table: PaimonTable) -> list[PartitionFiles]:
    directory = table.new_directory()
    return _partitions(table, TableState(directory, directory.snapshots.get_latest_snapshot()))


def _partitions(table: PaimonTable, state: TableState) -> list[PartitionFiles]:
    return [] if state.snapshot is None else partitions_at(table, state.directory, state.snapshot)
