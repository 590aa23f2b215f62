"""`StreamedTable`: the table that a stream reads, and what must be known of it first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.concurrency.threads_to_asyncio import on_event_loop
from pypaimon.streaming.errors import TableChangedError, UnsupportedTableError
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.metadata.table_handle import TableHandle
from pypaimon.streaming.model.time_zone import TIME_ZONE
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_traits import ChainBranches, TableTraits
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.paimon.internals import TableSchema, is_paimon_table
from pypaimon.streaming.spec.chain_tables import followed_table

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.snapshots import Snapshot

_OTHER_BRANCH = (option_keys.SCAN_FALLBACK_BRANCH, option_keys.SCAN_PRIMARY_BRANCH)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The facts of a table at the time of the requests.

    Attributes:
        newest: Its newest schema.
        schema: The newest schema with the options that the table handle adds, with which streams read.
        traits: Its kind.
        identity: Its identity, see `TableDirectory.identity`.
    """

    newest: TableSchema
    schema: TableSchema
    traits: TableTraits
    identity: str

    @staticmethod
    def of(directory: TableDirectory, newest: TableSchema | None = None) -> TableFacts:
        """Read the facts of a table, with at most two requests. Blocks.

        Args:
            directory: Directory of the table; its threads are released afterwards.
            newest: The newest schema, if it was just read.

        Raises:
            TableChangedError: The table is gone.
            PaimonStreamError: The store fails, or the schema cannot be read.
        """
        try:
            if newest is None:
                newest = directory.latest_schema()
            directory.know(newest)
            identity = directory.identity
        except FileNotFoundError as error:
            raise TableChangedError(f"The table was dropped: {error} is not there. Load the table again.") from error
        finally:
            directory.store.pool.release()
        schema = directory.reading_schema(newest.id)
        return TableFacts(newest, schema, TableTraits.of(schema), identity)


@dataclass(frozen=True, slots=True, eq=False)
class StreamedTable:
    """A table, the branch of it whose snapshots a stream follows, and its facts. A pickle holds the facts.

    Attributes:
        handle: pypaimon's table, as it was loaded.
        followed: The handle of the branch that is followed: the table itself, or the delta branch of a chain table.
        chain: The branches of a chain table; None for other tables.
        facts: The facts of `followed`. All streams of the table share them.
        latest: The latest snapshot, if it was read before the facts; a stream may begin with it.
        latest_at: The time before `latest` was requested, on the monotonic clock.
    """

    handle: ReadableTable
    followed: ReadableTable
    chain: ChainBranches | None
    facts: Lazy[TableFacts]
    latest: Snapshot | None = None
    latest_at: float = float("-inf")

    @staticmethod
    def of(table: ReadableTable, newest: TableSchema | None = None) -> StreamedTable:
        """The table of a stream. Reads its facts now; on an event loop the first step of a stream does.

        Args:
            table: pypaimon's table.
            newest: The newest schema of the table, if it was just read.

        Raises:
            UnsupportedTableError: The table cannot be streamed.
            TableChangedError: The table is gone.
        """
        refuse_unstreamable(table)
        followed, chain = followed_table(table)
        facts = Lazy(partial(_facts_of, followed, newest=newest if chain is None else None))
        if not on_event_loop():
            facts.get()
        return StreamedTable(table, followed, chain, facts)

    @property
    def name(self) -> str:
        """The name of the table with its database."""
        return str(self.handle.identifier.get_full_name())

    def with_time_zone(self, name: str) -> StreamedTable:
        """The table with another time zone."""
        handle = self.handle.copy_without_time_travel({TIME_ZONE: name})
        followed, chain = followed_table(handle)
        known = self.facts.known
        if known is None:
            facts = Lazy(partial(_facts_of, followed))
        else:
            schema = known.schema.copy(new_options={**known.schema.options, TIME_ZONE: name})
            facts = Lazy.of(replace(known, schema=schema))
        return replace(self, handle=handle, followed=followed, chain=chain, facts=facts)

    def with_schema(self, schema: TableSchema) -> StreamedTable:
        """The table, read with another schema. Blocks while the table is not known."""
        return replace(self, facts=Lazy.of(replace(self.facts.get(), schema=schema, traits=TableTraits.of(schema))))

    def with_latest(self, latest: Snapshot | None, at: float) -> StreamedTable:
        """The table with its latest snapshot, which is ignored if streams follow another branch than main.

        Args:
            latest: The snapshot, if it was read.
            at: The time before it was requested, on the monotonic clock.
        """
        is_main = self.chain is None and self.handle.current_branch() in (None, "", "main")
        return replace(self, latest=latest if is_main else None, latest_at=at)


def _facts_of(
    table: ReadableTable, directory: TableDirectory | None = None, newest: TableSchema | None = None
) -> TableFacts:
    """The facts of a table, read through a directory of it, or after unpickling with the default time limit."""
    return TableFacts.of(directory or TableDirectory.of(table), newest)


def refuse_unstreamable(table: ReadableTable) -> None:
    """Refuse tables without snapshots of one branch to follow. A chain table has those of its delta branch.

    Raises:
        UnsupportedTableError: The table is not of Paimon's own format, or falls back to another branch.
    """
    if not isinstance(table, TableHandle) and not is_paimon_table(table):
        raise UnsupportedTableError(
            f"{type(table).__name__} cannot be streamed: only tables of Paimon's own format have snapshots to follow.",
            advice="For a view of one (audit_log, binlog, ro, row_tracking) use stream_read_builder(table, view=...).",
            option="stream_read_builder: view",
        )
    options = table.table_schema.options
    if option_keys.CHAIN_TABLE_ENABLED.of(options):
        return
    for key in _OTHER_BRANCH:
        if branch := key.of(options):
            raise UnsupportedTableError(
                f"Tables with '{key}' = '{branch}' cannot be streamed: a stream follows one branch. "
                "Load the branch to follow, 'db.table$branch_<name>', without this option."
            )
