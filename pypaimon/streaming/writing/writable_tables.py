"""Which tables can be written exactly. Others are refused with a reason, before the first row."""

from __future__ import annotations

from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.indexes.file_index import FileIndex, IndexOptions
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.data_types import root
from pypaimon.streaming.model.time_zone import zone_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.known_options import refuse_misspelled_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.table_kinds import BucketFunctionType
from pypaimon.streaming.paimon.write_internals import BucketMode
from pypaimon.streaming.writing.blob_forms import blob_forms
from pypaimon.streaming.writing.dynamic_buckets import BucketRules
from pypaimon.streaming.writing.files.file_options import warn_about_files
from pypaimon.streaming.writing.record_writer import RecordWriter

_LOG = StreamLog(__name__)

_NOTHING = ("", "none", "disabled", "false", "0 s", "0s")

_warned: set[tuple[str, str]] = set()


def left_out(options: TableOptions, *, maintains: bool = False, by_catalog: bool = False) -> str:
    """The options of a table that are not carried out here, with what to do instead; empty if there are none.

    Args:
        options: The options.
        maintains: Whether commits are followed by maintenance.
        by_catalog: Whether a catalog commits, which then knows the partitions.
    """
    write_only = option_keys.WRITE_ONLY.of(options)
    found = [
        f"{key} ({key.left_out.instead})"
        for key in option_keys.OPTION_KEYS
        if key.left_out is not None and (key.left_out.of_every_commit or not write_only)
        if not (maintains and key.left_out is option_keys.BY_MAINTENANCE)
        if not (by_catalog and key is option_keys.METASTORE_PARTITIONED_TABLE)
        if (key.text(options) or "").strip().lower() not in _NOTHING
    ]
    return ", ".join(found)


def warn_unsupported_maintenance(table: PaimonTable, *, maintains: bool = False) -> None:
    """Log, once in a process, the maintenance that a table's options ask for and commits here do not do."""
    options = left_out(table.options, maintains=maintains, by_catalog=table.is_managed_by_catalog)
    key = table.path, options
    if options and key not in _warned:
        _warned.add(key)
        text = "after commits to %(table)s a writer of Java would do more than is done here: %(options)s"
        _LOG.warning("upkeep_left_out", text, table=table.name, options=options)


def check_writable(table: PaimonTable, overwrite: bool, *, by_tasks: bool = False) -> None:
    """Refuse a table that cannot be written exactly. Raises UnsupportedTableError if its buckets, types, merge engine
    or manifests are not supported. `by_tasks`: several tasks write rows of one commit without knowing of each other.
    """
    refuse_misspelled_keys(table.options)
    check_commit_options(table)
    zone_of(table.options)
    _check_partition_columns(table)
    if overwrite:
        _check_chain(table)
    name, mode = table.name, table.bucket_mode
    if mode == BucketMode.HASH_DYNAMIC:
        BucketRules.of(table.options)
        if by_tasks:
            raise UnsupportedTableError(
                f"{name} has dynamic buckets ('bucket' = '-1' with a primary key): one assigner must know every key, "
                "and tasks know only their own. Use a fixed number of buckets, or postponed ones ('bucket' = "
                "'-2'), or write with stream_write_builder in one process."
            )
    if mode == BucketMode.CROSS_PARTITION:
        raise UnsupportedTableError(
            f"{name} has a primary key without all partition columns (cross-partition update): that needs an index of "
            "all keys. Put the partition columns into the primary key."
        )
    if mode == BucketMode.HASH_FIXED:
        _check_bucket_function(table)
    if mode == BucketMode.POSTPONE_MODE and table.traits.snapshot_ordering:
        raise UnsupportedTableError(
            f"{name} has 'sequence.snapshot-ordering' and postponed buckets, whose records would lose the order of a "
            "commit."
        )
    blob_forms(table.schema)
    # Raises if the options of the indexes cannot be used.
    FileIndex(IndexOptions.of(table.options, table.fields).written, arrow_schema(table.fields))
    try:
        # Writes nothing: making one checks the format, the types and the merge engine.
        RecordWriter(table, "check", overwrite)
    except (NotImplementedError, ValueError) as error:
        raise UnsupportedTableError(f"{name} cannot be written: {error}") from error


def warn_about_gaps(table: PaimonTable, *, maintains: bool = False) -> None:
    """Log what a table's options ask for and writers here do not do; to be called once for each writer."""
    if unwritten := IndexOptions.of(table.options, table.fields).unwritten:
        text = "some file indexes of %(table)s are not written (%(indexes)s): reads are correct, but skip fewer files"
        _LOG.warning("indexes_not_written", text, table=table.name, indexes=", ".join(map(str, unwritten)))
    warn_unsupported_maintenance(table, maintains=maintains)
    warn_about_files(table, adds_rows=True)


def _check_partition_columns(table: PaimonTable) -> None:
    if not option_keys.PARTITION_LEGACY_NAME.of(table.options):
        return
    for field in table.partition_fields:
        if root(field.type) in ("BINARY", "VARBINARY"):
            raise UnsupportedTableError(
                f"{table.name}: partition column '{field.name}' ({field.type}) cannot be written, because Java does "
                "not find the files of such a partition again. Create the table with 'partition.legacy-name' = "
                "'false', or make the column a STRING."
            )


def _check_chain(table: PaimonTable) -> None:
    options = table.options
    delta = option_keys.SCAN_FALLBACK_DELTA_BRANCH.of(options) or ""
    if option_keys.CHAIN_TABLE_ENABLED.of(options) and table.branch.lower() == delta.lower():
        raise UnsupportedTableError(
            f"{table.name} is the delta branch of a chain table. Java empties the partitions of its snapshot branch "
            "when it is overwritten, and this library does not. Overwrite it with Java."
        )


def _check_bucket_function(table: PaimonTable) -> None:
    name = table.name
    function = option_keys.BUCKET_FUNCTION_TYPE.of(table.options)
    kinds = [str(field.type).partition(" ")[0].upper() for field in table.schema.logical_bucket_key_fields]
    if function is BucketFunctionType.MOD and kinds not in (["INT"], ["BIGINT"]):
        raise UnsupportedTableError(f"{name}: 'bucket-function.type' = 'mod' needs a bucket key of one INT or BIGINT.")
    if function is BucketFunctionType.HIVE:
        raise UnsupportedTableError(f"{name}: 'bucket-function.type': expected 'default' or 'mod', got 'hive'.")
