"""Chain tables: the branch that a stream of one follows, and the settings that it refuses."""

from __future__ import annotations

from dataclasses import replace

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.filtering.filters import columns_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.start import Start, StartMode, start_of_options
from pypaimon.streaming.options.stream_options import StreamOptions
from pypaimon.streaming.options.table_traits import ChainBranches, TableTraits
from pypaimon.streaming.paimon.handles import ReadableTable, on_branch
from pypaimon.streaming.paimon.internals import TableSchema
from pypaimon.streaming.spec.stream_spec import StreamSpec


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
    """The settings of a stream of a chain table.

    Args:
        table: The table as it was loaded.
        chain: Its branches.
        schema: The schema that is read with: that of the delta branch.
        spec: The settings of the caller.
        options: `spec` over the options of the delta branch.

    Raises:
        StreamConfigError: Another start, a consumer id or a filter on partitions is set, which Java refuses, too.
        UnsupportedTableError: The delta branch does not keep the newest record of each key, or a range is set, whose
            snapshots are those of one branch.
    """
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
