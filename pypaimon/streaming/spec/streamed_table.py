"""`StreamedTable`: the table that a stream reads, and what must be known of it first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.concurrency.threads_to_asyncio import on_event_loop
from pypaimon.streaming.errors import StreamConfigError, TableChangedError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import columns_of
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.metadata.table_handle import TableHandle
from pypaimon.streaming.model.time_zone import TIME_ZONE
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.start import Start, StartMode, start_of_options
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import ChainBranches, TableTraits
from pypaimon.streaming.paimon.handles import ReadableTable, on_branch
from pypaimon.streaming.paimon.internals import TableSchema, is_paimon_table
from pypaimon.streaming.spec.stream_spec import StreamSpec

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.snapshots import Snapshot


def followed_table(table: ReadableTable) -> tuple[ReadableTable, ChainBranches | None]:
    """The handle of the table, or branch, whose snapshots a stream of a table follows.

    Returns:
        The table itself and None; of a chain table its delta branch, and its branches.
    """
    chain = ChainBranches.of(table.table_schema.options, str(table.current_branch()))
    return (table, None) if chain is None else (on_branch(table, chain.delta), chain)


def options_of_chain(
    table: ReadableTable, chain: ChainBranches, schema: TableSchema, spec: StreamSpec, options: StreamOptions
) -> StreamOptions:
    """The settings of a stream of a chain table."""
    delta = f"'{table.identifier.get_database_name()}.{table.identifier.get_table_name()}$branch_{chain.delta}'"
    traits = TableTraits.of(schema)
    if not traits.primary_key or not traits.merge_engine.keeps_newest:
        kind = traits.merge_engine.value if traits.primary_key else "no"
        raise UnsupportedTableError(
            f"Chain table does not support {kind} merge engine on the delta branch for streaming read: it must be "
            f"deduplicate. The branch is a table of its own: load {delta}."
        )
    of_table = table.table_schema.options
    start = spec.start or start_of_options(of_table)
    if options.between is not None:
        raise UnsupportedTableError(
            f"{options.between.given}: a chain table has no ranges, because snapshot ids, tags and times are those of "
            f"one branch. Load the branch, a table of its own, as {delta}."
        )
    if not start.of_chain:
        raise _unsupported(f"startup mode '{start.text}'", delta, "Snapshot ids and times are those of one branch")
    if options.consumer is not None or option_keys.CONSUMER_ID.of(of_table) is not None:
        raise _unsupported(option_keys.CONSUMER_ID.name, delta, "Save positions (Position.to_json()) to resume")
    if options.predicate is not None and columns_of(options.predicate) & set(schema.partition_keys):
        raise StreamConfigError(
            "Partition filter is not supported in chain table streaming read: which partitions are read depends on "
            f"those of both branches. Filter the rows yourself, or load {delta} and filter that."
        )
    return replace(options, start=start if spec.start is not None else Start(StartMode.LATEST_FULL), chain=chain)


def _unsupported(what: str, delta: str, why: str) -> StreamConfigError:
    return StreamConfigError(
        f"Chain table streaming read does not support {what}. {why}; or load {delta}, a table of its own, which such a "
        "stream follows after its first plan."
    )


_OTHER_BRANCH = (option_keys.SCAN_FALLBACK_BRANCH, option_keys.SCAN_PRIMARY_BRANCH)


@dataclass(frozen=True, slots=True)
class TableFacts:
    newest: TableSchema
    schema: TableSchema
    traits: TableTraits
    identity: str

    @staticmethod
    def of(directory: TableDirectory, newest: TableSchema | None = None) -> TableFacts:
        """Read the facts of a table, with at most two requests. Blocks.

        Args:
            directory: Directory of the table.
            newest: The newest schema, if it was just read.

        Raises:
            TableChangedError: The table is gone.
        """
        try:
            if newest is None:
                newest = directory.latest_schema()
            directory.know(newest)
            identity = directory.identity
        except FileNotFoundError as error:
            raise TableChangedError(f"The table was dropped: {error} is not there. Load the table again.") from error
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

        Raises:
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
        return str(self.handle.identifier.get_full_name())

    def with_time_zone(self, name: str) -> StreamedTable:
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
        """The table with its latest snapshot, which is ignored if streams follow another branch than main."""
        is_main = self.chain is None and self.handle.current_branch() in (None, "", "main")
        return replace(self, latest=latest if is_main else None, latest_at=at)


def _facts_of(
    table: ReadableTable, directory: TableDirectory | None = None, newest: TableSchema | None = None
) -> TableFacts:
    """The facts of a table, read through a directory of it, or after unpickling with the default time limit."""
    return TableFacts.of(directory or TableDirectory.of(table), newest)


def without_consumer(table: ReadableTable) -> ReadableTable:
    """The table without the consumer that an option names, whose reader would lose it to another stream."""
    return table.copy_without_time_travel({option_keys.CONSUMER_ID.name: None})


def refuse_unstreamable(table: ReadableTable) -> None:
    """Refuse tables without snapshots of one branch to follow. A chain table has those of its delta branch."""
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
