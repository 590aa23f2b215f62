"""`FileOptions`: how the new files of a table are written, by its options."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.files.blob_files import BLOB_FILE
from pypaimon.streaming.files.orc_local_zones import is_legacy
from pypaimon.streaming.formats.binary_row_encoding import encoded_row
from pypaimon.streaming.formats.registry import FORMATS, WRITABLE
from pypaimon.streaming.indexes.file_index import IndexOptions
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.file_paths import SpelledPath
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_type, holds_local_timestamps
from pypaimon.streaming.model.data_types import type_names
from pypaimon.streaming.model.position import POSTPONE_BUCKET
from pypaimon.streaming.model.time_zone import TimeZone, zone_of
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import OptionKey, TableOptions
from pypaimon.streaming.options.table_traits import BlobStorage
from pypaimon.streaming.paimon.write_internals import canonical_data_file_path
from pypaimon.streaming.writing.files.statistics import NONE, StatsModes

APPENDED, COMPACTED = 0, 1
"""The source of the records of a file, as in its metadata."""
_LOG = StreamLog(__name__)
_FORMAT_OPTIONS = (option_keys.FILE_FORMAT, option_keys.FILE_FORMAT_PER_LEVEL, option_keys.CHANGELOG_FILE_FORMAT)
_warned: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class FileKind:
    """How the files of one kind (data, changelog) are made."""

    format: str  # A writable format of the registry, or `blob`
    compression: str
    prefix: str
    stats: StatsModes
    suffix: str
    source: int  # Source of the records: `APPENDED` or `COMPACTED`
    indexes: IndexOptions | None = None  # File indexes; None: no indexes
    managed_blobs: tuple[str, ...] = ()  # Columns whose blobs are in files that a sidecar names
    target_rows: int | None = None  # A file ends once it has this many rows; None: no bound


@dataclass(frozen=True, slots=True)
class FileOptions:
    """The options of one table's new files."""

    data: FileKind
    changelog: FileKind
    zstd_level: int
    target_bytes: int  # A file ends once it has this many bytes
    thin: bool  # Whether files of a primary-key table leave out the copies of the key (`data-file.thin-mode`)
    page_index: bool
    block_bytes: int | None = None  # Bytes of rows in a row group of Parquet, and in a stripe of ORC; None: the default
    level: int = 0  # Level of the files: 0 for new rows, above it for compacted ones
    # The zone in whose local time ORC files hold TIMESTAMP WITH LOCAL TIME ZONE; None: as moments in UTC
    orc_zone: TimeZone | None = None

    @staticmethod
    def of_compacted(table: PaimonTable, level: int) -> FileOptions:
        """The options of files that a compaction makes for a level (0 for a table without levels).

        Only changelog files, whose rows are new, are bounded by their number of rows. Errors as `of`.
        """
        made = FileOptions.of(table, "", level)
        return replace(made, data=replace(made.data, source=COMPACTED, target_rows=None))

    @staticmethod
    def of(table: PaimonTable, user: str, level: int = 0) -> FileOptions:
        """The options of a table, for a commit user, which is in the names of files of postponed buckets
        (`_writer_prefix`). Raises UnsupportedTableError if the format or the codec cannot be written, StreamConfigError
        if an option is invalid.
        """
        options, keyed, postponed = table.options, table.is_primary_key_table, table.total_buckets == POSTPONE_BUCKET
        prefix = option_keys.DATA_FILE_PREFIX.of(options)
        if postponed:
            prefix = _writer_prefix(prefix, user)
        # Java uses options of levels for primary-key tables only.
        its_own = partial(_of_level, options, level) if keyed and not postponed else lambda key: None
        format_ = its_own(option_keys.FILE_FORMAT_PER_LEVEL) or option_keys.FILE_FORMAT.of(options)
        format_ = _format(format_ or ("avro" if postponed else "parquet"), option_keys.FILE_FORMAT)
        compression = its_own(option_keys.FILE_COMPRESSION_PER_LEVEL) or option_keys.FILE_COMPRESSION.of(options)
        stats = "none" if postponed else its_own(option_keys.METADATA_STATS_MODE_PER_LEVEL)
        data = _kind(table, format_, compression, prefix, stats)
        indexes = IndexOptions.of(options, table.fields)
        if indexes.written and not postponed:
            data = replace(data, indexes=indexes)
        data = replace(data, managed_blobs=BlobStorage.managed(table.schema))
        changelog = _kind(
            table,
            _format(option_keys.CHANGELOG_FILE_FORMAT.of(options) or format_, option_keys.CHANGELOG_FILE_FORMAT),
            option_keys.CHANGELOG_FILE_COMPRESSION.of(options) or compression,
            option_keys.CHANGELOG_FILE_PREFIX.of(options),
            option_keys.CHANGELOG_FILE_STATS_MODE.of(options) or stats,
        )
        return FileOptions(
            data,
            changelog,
            option_keys.FILE_COMPRESSION_ZSTD_LEVEL.of(options),
            target_file_bytes(options, keyed),
            keyed and option_keys.DATA_FILE_THIN_MODE.of(options),
            option_keys.PARQUET_WRITE_PAGE_INDEX_ENABLED.of(options),
            option_keys.FILE_BLOCK_SIZE.of(options) or None,
            level,
            orc_zone(options),
        )

    @staticmethod
    def of_blobs(table: PaimonTable) -> FileOptions:
        """The options of blob files, whose only statistics are their numbers of rows. Errors as `of`."""
        made = FileOptions.of(table, "")
        stats = StatsModes({field.name: NONE for field in table.fields}, made.data.stats.dense)
        data = FileKind("blob", "none", made.data.prefix, stats, BLOB_FILE, made.data.source)
        target = option_keys.BLOB_TARGET_FILE_SIZE.of(table.options)
        return replace(made, data=data, target_bytes=made.target_bytes if target is None else target)


def orc_zone(options: TableOptions) -> TimeZone | None:
    """The zone that a table names for its ORC files, if they depend on it; None: they hold moments in UTC."""
    zone = zone_of(options)
    return None if zone.name is None or zone.is_utc or not is_legacy(options) else zone


def target_file_bytes(options: TableOptions, keyed: bool) -> int:
    """Size of new files; the default is 128 MB for tables with a primary key, 256 MB for others."""
    size = option_keys.TARGET_FILE_SIZE.of(options)
    return (128 if keyed else 256) << 20 if size is None else size


def small_file_bytes(options: TableOptions, target: int) -> int:
    return int(target * option_keys.COMPACTION_SMALL_FILE_RATIO.of(options))


def _kind(table: PaimonTable, format_: str, compression: str, prefix: str, stats: str | None) -> FileKind:
    options, codec = table.options, compression.strip().lower()
    between = f".{codec}" if option_keys.FILE_SUFFIX_INCLUDE_COMPRESSION.of(options) else ""
    modes = StatsModes.of(options, [field.name for field in table.fields], stats)
    rows = option_keys.TARGET_FILE_ROW_NUM.of(options)
    return FileKind(format_, codec, prefix, modes, f"{between}.{format_}", APPENDED, target_rows=rows)


def _writer_prefix(prefix: str, user: str) -> str:
    # Java's compaction of such a bucket parses the number after the first `-s-` as that of the writer, and
    # keeps the order of one writer's files only. A commit user has one number, so later files stay newer even
    # after a restart.
    return f"{prefix}-u-{user.replace('-s-', '-')}-s-{zlib.crc32(user.encode()) & 0x7FFFFFFF}-w-"


def _format(text: str, key: OptionKey[str, Any]) -> str:
    name = text.strip().lower()
    if name not in WRITABLE:
        raise UnsupportedTableError(f"'{key}' = '{name}' cannot be written. Set one of {', '.join(WRITABLE)}.")
    return name


def _of_level(options: TableOptions, level: int, key: OptionKey[str, None]) -> str | None:
    """The value for a level in an option such as `0:avro,3:parquet`."""
    for part in (key.of(options) or "").split(","):
        named, found, value = part.partition(":")
        if found and named.strip() == str(level):
            return value.strip()
    return None


def _warn_about_orc_zone(table: PaimonTable) -> None:
    """Log, once in a process, that Java reads columns of a table correctly in one time zone only."""
    options = table.options
    columns = [field.name for field in table.fields if holds_local_timestamps(arrow_type(field.type))]
    if not columns or not is_legacy(options) or not any("orc" in str(key.of(options)) for key in _FORMAT_OPTIONS):
        return
    zone = orc_zone(options)
    warning = table.path, "UTC" if zone is None else str(zone.name)
    if warning not in _warned:
        _warned.add(warning)
        text = (
            "Java reads %(columns)s in the ORC files of %(table)s correctly only in a JVM of time zone %(zone)s: set "
            "another zone with the option 'time-zone', or set 'orc.timestamp-ltz.legacy.type' to 'false'"
        )
        _LOG.warning("orc_time_zone", text, table=table.name, columns=", ".join(columns), zone=warning[1])


def warn_about_files(table: PaimonTable, *, adds_rows: bool) -> None:
    """Log what readers of Java may miss in new files. `adds_rows`: They are of new rows, and not of a compaction."""
    _warn_about_orc_zone(table)
    _warn_about_ignored_options(table, adds_rows)


def _warn_about_ignored_options(table: PaimonTable, adds_rows: bool) -> None:
    """Log, once in a process, the options of new files that Java heeds and that have no effect here."""
    options, known = table.options, option_keys.known_names()
    prefixes = tuple(f"{name}." for name in FORMATS)
    ignored = [key for key in options if key.startswith(prefixes) and key not in known]
    vectors = option_keys.VECTOR_FILE_FORMAT
    if adds_rows and vectors.set_as(options) and any("VECTOR" in type_names(field.type) for field in table.fields):
        ignored.append(vectors.name)
    # Not their values: keys of an encryption may be among them.
    shown = ", ".join(sorted(ignored))
    if ignored and (table.path, shown) not in _warned:
        _warned.add((table.path, shown))
        text = "files of %(table)s are written without options that those of Java heed: %(options)s"
        _LOG.warning("file_options_ignored", text, table=table.name, options=shown)


class BucketFiles:
    """Paths of new files of one bucket of one partition. `bucket`: the bucket; -2 is the postponed one."""

    def __init__(self, table: PaimonTable, options: FileOptions, partition: tuple[Any, ...], bucket: int) -> None:
        self.table = table
        self.options = options
        self.partition = partition
        self.bucket = bucket
        self._paths = table.paths
        row = encoded_row(partition, table.partition_fields)
        (self._directory,) = self._paths.partitions(pa.array([row], pa.binary()))
        self._external = table.handle.path_factory().create_external_path_provider(
            partition, bucket, canonical_partition=True
        )
        # pypaimon's paths lose the nanoseconds of a partition, and are in the time zone of the process.
        kinds = [arrow_type(field.type) for field in table.partition_fields]
        self._is_spelled_here = any(pa.types.is_timestamp(kind) and (kind.tz or kind.unit == "ns") for kind in kinds)
        self._unique = uuid4()
        self._count = 0

    @property
    def external(self) -> bool:
        """Whether files are outside of the table's directory, so that their metadata needs the path."""
        return self._external is not None

    def new_path(self, kind: FileKind) -> tuple[str, str]:
        """Name and path of a new file."""
        name = f"{kind.prefix}{self._unique}-{self._count}{kind.suffix}"
        self._count += 1
        if self._external is not None:
            return name, str(self._external.get_next_external_data_path(name))
        path = self._paths.data_file(self._directory, self.bucket, name)
        if not isinstance(path, SpelledPath) and not self._is_spelled_here:
            # pypaimon's own, which knows how a local URI must be spelled.
            path = canonical_data_file_path(self.table.handle, self.partition, self.bucket, name)
        return name, str(path)
