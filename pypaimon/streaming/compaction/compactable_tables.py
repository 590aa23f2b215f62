"""Which tables can be compacted exactly. Others are refused with a reason before anything is written."""

from __future__ import annotations

import re

from pypaimon.streaming.commit.snapshot_commit import check_commit_options
from pypaimon.streaming.compaction.compaction_options import CompactionOptions
from pypaimon.streaming.compaction.record_expiry import RecordExpiry
from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.registry import check_format
from pypaimon.streaming.indexes.file_index import IndexOptions
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.data_types import holds_blobs
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.known_options import refuse_misspelled_keys
from pypaimon.streaming.options.table_kinds import ChangelogProducer
from pypaimon.streaming.writing.files.file_options import FileOptions

_REFUSED_OPTIONS = {
    option_keys.ROW_TRACKING_ENABLED: "its rows have ids",
    option_keys.DATA_EVOLUTION_ENABLED: "its rows are spread over several files",
    option_keys.CLUSTERING_INCREMENTAL: "its files are clustered",
    option_keys.PK_CLUSTERING_OVERRIDE: "its files are clustered",
    option_keys.SEQUENCE_SNAPSHOT_ORDERING: "snapshots decide which of its records is the newer one",
}
_VECTORS = option_keys.DELETION_VECTORS_ENABLED
_KEYED_INDEXES = re.compile(r"pk-(vector|btree|bitmap|multivalue|full-text)\.index\.columns")


def under_latest_schema(table: PaimonTable, directory: TableDirectory) -> PaimonTable:
    """The table under its latest schema. Under an older one, columns that were added since would be lost."""
    return table.with_schema(directory.reading_schema(directory.latest_schema().id))


def check_compactable(table: PaimonTable) -> None:
    """Refuse a table that cannot be compacted exactly.

    Raises:
        UnsupportedTableError: Its kind, an option, a type or a format is not supported.
        StreamConfigError: An option cannot be read, or is misspelled.
    """
    options, name = table.options, table.name
    refuse_misspelled_keys(options)
    for key, why in _REFUSED_OPTIONS.items():
        if key.of(options):
            raise UnsupportedTableError(f"{name} has '{key}': {why}, and such tables are not compacted here.")
    if _VECTORS.of(options):
        _check_vectors(table)
    if unwritten := IndexOptions.of(options, table.fields).unwritten:
        lost = ", ".join(map(str, unwritten))
        raise UnsupportedTableError(f"{name} has file indexes that compaction here would lose: {lost}.")
    if option_keys.CHAIN_TABLE_ENABLED.of(options):
        raise UnsupportedTableError(f"{name} is a chain table, which is not compacted here.")
    for field in table.fields:
        if holds_blobs(field.type):
            raise UnsupportedTableError(f"Column '{field.name}' of {name} is {field.type}, which is not written here.")
    check_commit_options(table)
    found = CompactionOptions.of(table)
    if table.is_primary_key_table:
        _check_keyed(table)
    for level in range(found.levels if table.is_primary_key_table else 1):
        check_format(FileOptions.of_compacted(table, level).data.format, table.fields)


def _check_vectors(table: PaimonTable) -> None:
    name = table.name
    if not table.is_primary_key_table:
        return
    if table.traits.merge_engine.keeps_oldest:
        raise UnsupportedTableError(f"{name} has '{_VECTORS}' and merge engine first-row, which never replaces rows.")
    if table.traits.producer is ChangelogProducer.FULL_COMPACTION:
        raise UnsupportedTableError(
            f"{name} has '{_VECTORS}' and 'changelog-producer' = 'full-compaction', which are not compacted together."
        )


def _check_keyed(table: PaimonTable) -> None:
    name = table.name
    for key in table.options:
        if _KEYED_INDEXES.fullmatch(key):
            raise UnsupportedTableError(f"{name} has '{key}': its compaction makes indexes that are not made here.")
    if table.traits.postpone:
        raise UnsupportedTableError(
            f"{name} has postponed buckets ('bucket' = '-2'): its compaction distributes records over buckets, which "
            "is not done here. Run `CALL sys.compact(...)` of Flink or Spark."
        )
    merge_engine(table.schema)
    RecordExpiry.of(table)
