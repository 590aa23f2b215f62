"""Every option of a table that this library knows: the one place for names, kinds, defaults and former names.

A constant is called like its option, without the `#` that stands for a field; `option_keys.MERGE_ENGINE.of(options)` is
its value. The table in docs/options.md, the check of misspelled keys, the options that Spark and the command line
accept, and the completion of the latter all come from here. Meanings are Markdown, for that table. The file is longer
than others, because it is one table: with two, readers would have to know in which half to look.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pypaimon.streaming.model import time_zone
from pypaimon.streaming.options.option_key import (
    BOOLEAN,
    DURATION,
    LOCAL_TIME,
    NUMBER,
    SIZE,
    TEXT,
    LeftOut,
    OptionKey,
    Use,
    duration,
    member,
    one_of,
    whole,
)
from pypaimon.streaming.options.table_kinds import (
    BetweenMode,
    BucketFunctionType,
    ChangelogProducer,
    MergeEngineKind,
    SortStrategy,
)

_R, _W, _C = Use.READ, Use.WRITE, Use.COMPACT
_RW, _RC, _WC = _R | _W, _R | _C, _W | _C
_RWC = _R | _W | _C
_M = Use.MAINTAIN
_WM, _RM, _RWM = _W | _M, _R | _M, _R | _W | _M
_MB = 1 << 20
_MOST_BUCKETS = (1 << 15) - 1
_START_WORDS = one_of(
    "default", "latest-full", "full", "latest", "latest-delta", "compacted-full", "from-timestamp",
    "from-creation-timestamp", "from-file-creation-time", "from-snapshot", "from-snapshot-full", "incremental",
)  # fmt: skip
_MAINTAIN = BY_MAINTENANCE = LeftOut("run maintain or paimon-stream maintain")
_MARKS = LeftOut("run maintain or paimon-stream maintain", True)
_DONE, _COMMIT = LeftOut("run paimon-stream partitions mark-done", True), LeftOut("have Java commit", True)
_VISIBLE = LeftOut("have Java commit, which waits until the rows are visible", True)
_BETWEEN = "refused by streams: use [`with_range(...)`](reading.md#between-two-moments) or a Spark batch"
_START = "a [start](reading.md#where-a-stream-starts)"
_OTHER_BRANCH = "refused by streams; that branch is not [deleted](maintenance.md#branches)"
_CHAIN = "[chain tables](java-semantics.md#chain-tables)"

Key = OptionKey
# A table: most options are one line.
# fmt: off
# The kind of the table.
MERGE_ENGINE = Key("merge-engine", member(MergeEngineKind), MergeEngineKind.DEDUPLICATE, _RWC,
    "how records with one key are merged")
CHANGELOG_PRODUCER = Key("changelog-producer", member(ChangelogProducer), ChangelogProducer.NONE, _RWC,
    "who writes changelog files")
BRANCH = Key("branch", TEXT, None, _RW, "the branch, like `db.table$branch_<name>`")
BUCKET = Key("bucket", whole(), -1, _RWC, "buckets; -1: dynamic (with a primary key) or none; -2: postponed")
POSTPONE_DEFAULT_BUCKET_NUM = Key("postpone.default-bucket-num", whole(1), None, _C,
    "buckets of a partition whose postponed rows are distributed for the first time")
POSTPONE_TARGET_ROW_NUM_PER_BUCKET = Key("postpone.target-row-num-per-bucket", whole(1), None, _C,
    "without it: as many buckets as postponed rows divided by this")
POSTPONE_TARGET_SIZE_PER_BUCKET = Key("postpone.target-size-per-bucket", SIZE, 1024 * _MB, _C,
    "without both: as many buckets as postponed bytes divided by this")
BUCKET_KEY = Key("bucket-key", TEXT, None, _RW, "columns that decide a row's bucket")
BUCKET_FUNCTION_TYPE = Key("bucket-function.type", member(BucketFunctionType), BucketFunctionType.DEFAULT, _RW,
    "the hash; `hive` is not written")
DELETION_VECTORS_ENABLED = Key("deletion-vectors.enabled", BOOLEAN, False, _RWC, "an index marks replaced rows")
DELETION_VECTORS_BITMAP64 = Key("deletion-vectors.bitmap64", BOOLEAN, False, _C, "deletion vectors of 64 bits")
DATA_EVOLUTION_ENABLED = Key("data-evolution.enabled", BOOLEAN, False, _RWC,
    "commits may write columns of existing rows")
DATA_EVOLUTION_ROW_SIDECAR_ENABLED = Key("data-evolution.row-sidecar.enabled", BOOLEAN, False, _C, "not compacted here")
DATA_EVOLUTION_COMPACTION_REWRITE_ROW_IDS = Key("data-evolution.compaction.rewrite-row-ids", BOOLEAN, False, _C,
    "refused, as in Java")
GLOBAL_INDEX_COLUMN_UPDATE_ACTION = Key("global-index.column-update-action", TEXT, "throw_error", _C,
    "`ignore`: compacted files note the newest update of each column")
VECTOR_FILE_FORMAT = Key("vector.file.format", TEXT, None, _WC,
    "vectors have files of their own, which stay; ignored by writers, which is logged")
ROW_TRACKING_ENABLED = Key("row-tracking.enabled", BOOLEAN, False, _RWC, "rows have ids")
ROW_TRACKING_PARTITION_GROUP_ON_COMMIT = Key("row-tracking.partition-group-on-commit", BOOLEAN, True, _W,
    "a commit numbers the rows of a partition consecutively")
PK_CLUSTERING_OVERRIDE = Key("pk-clustering-override", BOOLEAN, False, _RC,
    "files are sorted by `clustering.columns`, not by the key")
CLUSTERING_INCREMENTAL = Key("clustering.incremental", BOOLEAN, False, _C,
    "[compactions](compaction.md#sorted-files) sort rows")
CLUSTERING_COLUMNS = Key("clustering.columns", TEXT, None, _C, "by these columns", ("sink.clustering.by-columns",))
CLUSTERING_STRATEGY = Key("clustering.strategy", member(SortStrategy), SortStrategy.AUTO, _C,
    "in this order; `auto`: `zorder`, or `hilbert` from five columns on", ("sink.clustering.strategy",))
CLUSTERING_HISTORY_PARTITION_IDLE_TO_FULL_SORT = Key("clustering.history-partition.idle-to-full-sort", DURATION, None,
    _C, "age at which compactions of chosen partitions sort others too")
CLUSTERING_HISTORY_PARTITION_LIMIT = Key("clustering.history-partition.limit", whole(0), 5, _C,
    "most such partitions of a run")
ZORDER_VAR_LENGTH_CONTRIBUTION = Key("zorder.var-length-contribution", whole(1), 8, _C,
    "leading bytes of a text that `zorder` considers")
SORT_SPILL_BUFFER_SIZE = Key("sort-spill-buffer-size", SIZE, 64 * _MB, _C,
    "memory in which rows are sorted; more go to temporary files")
BUCKET_APPEND_ORDERED = Key("bucket-append-ordered", BOOLEAN, True, _C,
    "rows of a bucket of an append table have an order, which clustering would lose")
CHAIN_TABLE_ENABLED = Key("chain-table.enabled", BOOLEAN, False, _RWC, _CHAIN)
CHAIN_TABLE_CHAIN_PARTITION_KEYS = Key("chain-table.chain-partition-keys", TEXT, None, _R, _CHAIN)
CHAIN_TABLE_STREAMING_MERGE_SNAPSHOT = Key("chain-table.streaming.merge-snapshot", BOOLEAN, False, _R, _CHAIN)
SCAN_FALLBACK_SNAPSHOT_BRANCH = Key("scan.fallback-snapshot-branch", TEXT, None, _RM, _CHAIN)
SCAN_FALLBACK_DELTA_BRANCH = Key("scan.fallback-delta-branch", TEXT, None, _RWM, _CHAIN)
SCAN_FALLBACK_BRANCH = Key("scan.fallback-branch", TEXT, None, _RM, _OTHER_BRANCH)
SCAN_PRIMARY_BRANCH = Key("scan.primary-branch", TEXT, None, _RM, _OTHER_BRANCH)
QUERY_AUTH_ENABLED = Key("query-auth.enabled", BOOLEAN, False, _R, "a REST catalog filters rows and masks columns")
STREAM_SCAN_MODE = Key("stream-scan-mode", TEXT, None, _R, "refused: internal to Java's compaction")
TIME_ZONE = Key(time_zone.TIME_ZONE, TEXT, None, _RWC,
    "[time zone](java-semantics.md#time-zones); default: the process's. Java ignores it")

# Merging.
SEQUENCE_FIELD = Key("sequence.field", TEXT, None, _RWC, "columns whose greater value is newer")
SEQUENCE_FIELD_SORT_ORDER = Key("sequence.field.sort-order", one_of("ascending", "descending"), "ascending", _RWC,
    "`descending`: the smaller value is newer")
SEQUENCE_SNAPSHOT_ORDERING = Key("sequence.snapshot-ordering", BOOLEAN, False, _RWC,
    "the later snapshot's record is newer")
ROWKIND_FIELD = Key("rowkind.field", TEXT, None, _RW, "the column of row kinds")
IGNORE_DELETE = Key("ignore-delete", BOOLEAN, False, _RWC, "-D and -U records are ignored",
    ("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"))
IGNORE_UPDATE_BEFORE = Key("ignore-update-before", BOOLEAN, False, _W, "-U records are not written")
FORCE_LOOKUP = Key("force-lookup", BOOLEAN, False, _RWC, "compaction merges level 0 with the levels above")
AGGREGATION_REMOVE_RECORD_ON_DELETE = Key("aggregation.remove-record-on-delete", BOOLEAN, False, _RWC,
    "a -D record deletes the row")
PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE = Key("partial-update.remove-record-on-delete", BOOLEAN, False, _RWC,
    "a -D record deletes the row")
PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP = Key("partial-update.remove-record-on-sequence-group",
    TEXT, None, _RWC, "sequence groups whose -D records delete the row")
FIELDS_DEFAULT_AGGREGATE_FUNCTION = Key("fields.default-aggregate-function", TEXT, None, _RWC,
    "the function of other fields")
FIELDS_AGGREGATE_FUNCTION = Key("fields.#.aggregate-function", TEXT, None, _RWC, "the aggregate function of a field")
FIELDS_IGNORE_RETRACT = Key("fields.#.ignore-retract", BOOLEAN, False, _RWC, "-U and -D do not change the aggregate")
FIELDS_DISTINCT = Key("fields.#.distinct", BOOLEAN, False, _RWC, "`listagg`, `collect`: each value once")
FIELDS_LIST_AGG_DELIMITER = Key("fields.#.list-agg-delimiter", TEXT, ",", _RWC, "`listagg`: separator")
FIELDS_COUNT_LIMIT = Key("fields.#.count-limit", whole(), (1 << 31) - 1, _RWC, "`nested_update`: rows at most")
FIELDS_NESTED_KEY = Key("fields.#.nested-key", TEXT, None, _RWC, "`nested_update`: key of nested rows")
FIELDS_NESTED_KEY_NULL_STRATEGY = Key("fields.#.nested-key-null-strategy",
    one_of("merge", "ignore", "error"), "merge", _RWC, "`nested_update`: rows with a null key")
FIELDS_NESTED_SEQUENCE_FIELD = Key("fields.#.nested-sequence-field", TEXT, None, _RWC,
    "`nested_update`: as `sequence.field`")
FIELDS_SEQUENCE_GROUP = Key("fields.#.sequence-group", TEXT, None, _RWC, "the fields whose updates this one orders")
FIELDS_TS_FIELD = Key("fields.#.ts-field", TEXT, None, _RWC, "`merge_map_with_keytime`: the time; default: the last")

# Where streams and batches begin, what they read, and how far.
SCAN_MODE = Key("scan.mode", _START_WORDS, "default", _R, _START, ("log.scan",))
SCAN_TIMESTAMP_MILLIS = Key("scan.timestamp-millis", whole(), None, _R, _START, ("log.scan.timestamp-millis",))
SCAN_TIMESTAMP = Key("scan.timestamp", LOCAL_TIME, None, _R, _START)
SCAN_SNAPSHOT_ID = Key("scan.snapshot-id", whole(), None, _R, _START)
SCAN_VERSION = Key("scan.version", TEXT, None, _R, _START)
SCAN_FILE_CREATION_TIME_MILLIS = Key("scan.file-creation-time-millis", whole(), None, _R, _START)
SCAN_CREATION_TIME_MILLIS = Key("scan.creation-time-millis", whole(), None, _R, _START)
SCAN_TAG_NAME = Key("scan.tag-name", TEXT, None, _R, "refused by streams: use `with_start(tag=...)`")
SCAN_WATERMARK = Key("scan.watermark", whole(), None, _R, "refused, as in Java")
INCREMENTAL_BETWEEN = Key("incremental-between", TEXT, None, _R, _BETWEEN)
INCREMENTAL_BETWEEN_TIMESTAMP = Key("incremental-between-timestamp", TEXT, None, _R, _BETWEEN)
INCREMENTAL_TO_AUTO_TAG = Key("incremental-to-auto-tag", TEXT, None, _R, _BETWEEN)
INCREMENTAL_BETWEEN_SCAN_MODE = Key("incremental-between-scan-mode", member(BetweenMode), BetweenMode.AUTO, _R,
    "how a Spark batch reads such a range")
INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT = Key("incremental-between-tag-to-snapshot", BOOLEAN, False, _R,
    "its tags are read as snapshot ids; ignored by streams")
TAG_CREATION_PERIOD = Key("tag.creation-period", one_of("daily", "hourly", "two-hours"), "daily", _RM,
    "period and name of [automatic tags](maintenance.md#tags)")
TAG_CREATION_PERIOD_DURATION = Key("tag.creation-period-duration", DURATION, None, _RM,
    "another period; tags are named by minutes")
TAG_PERIOD_FORMATTER = Key("tag.period-formatter",
    one_of("with-dashes", "without-dashes", "without-dashes-and-spaces"), "with-dashes", _RM, "their names")
SCAN_BOUNDED_WATERMARK = Key("scan.bounded.watermark", whole(), None, _R, "the stream ends before a greater watermark")
SCAN_BUCKET = Key("scan.bucket", whole(), None, _R, "reads only this bucket")
SCAN_PARTITIONS = Key("scan.partitions", TEXT, None, _R,
    "reads [these partitions](writing.md#name-a-partition) only, `day=2026-11-21;day=2026-11-22`; `max_pt()` and "
    "`max_two_pt()` are refused, because they change")
SCAN_MAX_SNAPSHOT_COUNT = Key("scan.max-snapshot.count", whole(), None, _R, "unconfirmed plans at most")
SCAN_PLAN_SORT_PARTITION = Key("scan.plan-sort-partition", BOOLEAN, False, _R, "splits are ordered by partition")
SCAN_IGNORE_CORRUPT_FILES = Key("scan.ignore-corrupt-files", BOOLEAN, False, _R,
    "skips unreadable data files, with a warning")
SCAN_IGNORE_LOST_FILES = Key("scan.ignore-lost-files", BOOLEAN, False, _R, "skips lost data files, with a warning")
SCAN_PARALLELISM = Key("scan.parallelism", whole(1), None, _R,
    "tasks of a [Spark](spark.md) read; default: the processors")
STREAMING_READ_OVERWRITE = Key("streaming-read-overwrite", BOOLEAN, False, _R,
    "reads OVERWRITE snapshots of primary-key tables")
STREAMING_READ_APPEND_OVERWRITE = Key("streaming-read-append-overwrite", BOOLEAN, False, _R,
    "reads OVERWRITE snapshots of append tables")
STREAMING_READ_SNAPSHOT_DELAY = Key("streaming.read.snapshot.delay", DURATION, 0, _R, "age at which snapshots are read")
CONTINUOUS_DISCOVERY_INTERVAL = Key("continuous.discovery-interval", duration(1), 1000, _R,
    "pause between polls; Java's default is 10 s")
CONSUMER_ID = Key("consumer-id", TEXT, None, _R, "name of the [consumer](consumers.md)")
CONSUMER_IGNORE_PROGRESS = Key("consumer.ignore-progress", BOOLEAN, False, _R, "saved progress is ignored")
CONSUMER_EXPIRATION_TIME = Key("consumer.expiration-time", DURATION, None, _RWM,
    "time after its last save when a consumer is deleted", left_out=_MAINTAIN)
CONSUMER_CHANGELOG_ONLY = Key("consumer.changelog-only", BOOLEAN, False, _RM,
    "consumers keep changelogs, not snapshots")
SOURCE_SPLIT_TARGET_SIZE = Key("source.split.target-size", SIZE, 128 * _MB, _R, "size up to which files share a split")
SOURCE_SPLIT_OPEN_FILE_COST = Key("source.split.open-file-cost", SIZE, 4 * _MB, _RC,
    "least size that a packed file counts as")
FILE_INDEX_READ_ENABLED = Key("file-index.read.enabled", BOOLEAN, True, _R,
    "[file indexes](java-semantics.md#file-indexes) may drop files")
FULL_COMPACTION_DELTA_COMMITS = Key("full-compaction.delta-commits", whole(), None, _RC,
    "commits between a Java writer's full compactions; not used by compactions here")
TABLE_READ_SEQUENCE_NUMBER_ENABLED = Key("table-read.sequence-number.enabled", BOOLEAN, False, _R,
    "`$audit_log` and `$binlog` have sequence numbers")

# Where files are, and their formats.
PARTITION_DEFAULT_NAME = Key("partition.default-name", TEXT, "__DEFAULT_PARTITION__", _RW,
    "null in partition directories")
PARTITION_LEGACY_NAME = Key("partition.legacy-name", BOOLEAN, True, _RW,
    "partition directories have Java's older names of dates and times")
DATA_FILE_PATH_DIRECTORY = Key("data-file.path-directory", TEXT, None, _RW, "directory of data files below the table's")
INDEX_FILE_IN_DATA_FILE_DIR = Key("index-file-in-data-file-dir", BOOLEAN, False, _RW,
    "index files are in bucket directories")
DATA_FILE_EXTERNAL_PATHS = Key("data-file.external-paths", TEXT, None, _W, "other directories for new data files")
DATA_FILE_EXTERNAL_PATHS_STRATEGY = Key("data-file.external-paths.strategy", TEXT, "none", _W, "how one is chosen")
DATA_FILE_EXTERNAL_PATHS_SPECIFIC_FS = Key("data-file.external-paths.specific-fs", TEXT, None, _W,
    "the file system that is chosen")
DATA_FILE_PREFIX = Key("data-file.prefix", TEXT, "data-", _WC, "prefix of data files")
DATA_FILE_THIN_MODE = Key("data-file.thin-mode", BOOLEAN, False, _RWC, "data files leave out repeated key columns")
CHANGELOG_FILE_PREFIX = Key("changelog-file.prefix", TEXT, "changelog-", _WC, "prefix of changelog files")
CHANGELOG_FILE_FORMAT = Key("changelog-file.format", TEXT, None, _WC, "changelog format; default: `file.format`")
CHANGELOG_FILE_COMPRESSION = Key("changelog-file.compression", TEXT, None, _WC,
    "their codec; default: that of data files")
CHANGELOG_FILE_STATS_MODE = Key("changelog-file.stats-mode", TEXT, None, _WC,
    "their statistics; default: those of data files")
FILE_FORMAT = Key("file.format", TEXT, None, _WC, "format of data files; default: `parquet`; `avro` if postponed")
FILE_FORMAT_PER_LEVEL = Key("file.format.per.level", TEXT, None, _WC, "formats of levels, `0:avro,3:parquet`")
FILE_BLOCK_SIZE = Key("file.block-size", SIZE, None, _WC,
    "bytes of rows in a row group of Parquet (default: 32 mb) and in a stripe of ORC (64 mb)")
FILE_COMPRESSION = Key("file.compression", TEXT, "zstd", _WC, "codec of data files")
FILE_COMPRESSION_PER_LEVEL = Key("file.compression.per.level", TEXT, None, _WC, "codecs of levels, `0:lz4,3:zstd`")
FILE_COMPRESSION_ZSTD_LEVEL = Key("file.compression.zstd-level", whole(), 1, _WC, "level of the codec zstd")
FILE_SUFFIX_INCLUDE_COMPRESSION = Key("file.suffix.include.compression", BOOLEAN, False, _WC,
    "file names have the codec")
PARQUET_WRITE_PAGE_INDEX_ENABLED = Key("parquet.write-page-index.enabled", BOOLEAN, True, _WC,
    "Parquet files have a page index (this library's option)")
ORC_TIMESTAMP_LTZ_LEGACY_TYPE = Key("orc.timestamp-ltz.legacy.type", BOOLEAN, True, _RWC,
    "Java's ORC files [depend on its time zone](java-semantics.md#time-zones)")
METADATA_STATS_MODE = Key("metadata.stats-mode", TEXT, "truncate(16)", _WC,
    "statistics of columns: `none`, `counts`, `full` or `truncate(n)`")
METADATA_STATS_MODE_PER_LEVEL = Key("metadata.stats-mode.per.level", TEXT, None, _WC, "statistics of levels, `0:none`")
METADATA_STATS_KEEP_FIRST_N_COLUMNS = Key("metadata.stats-keep-first-n-columns", whole(), -1, _WC,
    "columns with statistics; -1: all")
METADATA_STATS_DENSE_STORE = Key("metadata.stats-dense-store", BOOLEAN, True, _WC,
    "leaves out columns without statistics")
FIELDS_MAP_STORAGE_LAYOUT = Key("fields.#.map.storage-layout", TEXT, "", _R,
    "`shared-shredding`: not for Spark's own reader")
FIELDS_STATS_MODE = Key("fields.#.stats-mode", TEXT, None, _WC, "statistics of a column")
FILE_INDEX_IN_MANIFEST_THRESHOLD = Key("file-index.in-manifest-threshold", SIZE, 500, _WC,
    "largest file index in the manifest")
FILE_INDEX_COLUMNS = Key("file-index.#.columns", TEXT, None, _RWC,
    "columns with this [file index](java-semantics.md#file-indexes)")
FILE_INDEX_BLOOM_FILTER_ITEMS = Key("file-index.bloom-filter.#.items", whole(), 1_000_000, _WC,
    "expected distinct values")
FILE_INDEX_BLOOM_FILTER_FPP = Key("file-index.bloom-filter.#.fpp", TEXT, "0.1", _WC, "share of false positives")
FILE_INDEX_BITMAP_VERSION = Key("file-index.bitmap.#.version", whole(), 2, _WC, "version of the index, 1 or 2")
FILE_INDEX_BITMAP_INDEX_BLOCK_SIZE = Key("file-index.bitmap.#.index-block-size", SIZE, 16 << 10, _WC,
    "size of the blocks of version 2")
FILE_INDEX_RANGE_BITMAP_CHUNK_SIZE = Key("file-index.range-bitmap.#.chunk-size", SIZE, None, _WC,
    "size of the chunks of its dictionary; default: 16 kb, or one key if keys have one or two bytes")

# Blobs.
BLOB_AS_DESCRIPTOR = Key("blob-as-descriptor", BOOLEAN, False, _RW,
    "[blobs](reading.md#blobs) are read and written as descriptors")
BLOB_DESCRIPTOR_FIELD = Key("blob-descriptor-field", TEXT, None, _RW,
    "columns that hold descriptors", ("blob.stored-descriptor-fields",))
BLOB_VIEW_FIELD = Key("blob-view-field", TEXT, None, _RW, "columns that refer to rows of other tables")
BLOB_VIEW_RESOLVE_ENABLED = Key("blob-view.resolve.enabled", BOOLEAN, True, _R, "these references are resolved")
BLOB_TARGET_FILE_SIZE = Key("blob.target-file-size", SIZE, None, _W, "size of blob files; default: `target-file-size`")
BLOB_COMPACTION_ENABLED = Key("blob-compaction.enabled", BOOLEAN, False, _C, "files of blobs are compacted too")
VIDEO_FRAME_FIELD = Key("video-frame-field", TEXT, None, _W, "refused")

# Writing and committing.
WRITE_BUFFER_SIZE = Key("write-buffer-size", SIZE, 256 * _MB, _W, "rows in memory before files are written")
WRITE_ONLY = Key("write-only", BOOLEAN, False, _WC, "writers do no maintenance")
WRITE_SEQUENCE_NUMBER_INIT_MODE = Key("write.sequence-number-init-mode", TEXT, None, _WC,
    "`snapshot`: the snapshot has the greatest sequence number")
TARGET_FILE_SIZE = Key("target-file-size", SIZE, None, _WC,
    "size of a file; default: 128 mb with a primary key, 256 mb without")
TARGET_FILE_ROW_NUM = Key("target-file-row-num", whole(1), None, _WC, "rows of a file")
DYNAMIC_PARTITION_OVERWRITE = Key("dynamic-partition-overwrite", BOOLEAN, True, _W,
    "an overwrite replaces the partitions that it writes")
DYNAMIC_BUCKET_TARGET_ROW_NUM = Key("dynamic-bucket.target-row-num", whole(1, (1 << 63) - 1), 2_000_000, _W,
    "keys of a full bucket")
DYNAMIC_BUCKET_INITIAL_BUCKETS = Key("dynamic-bucket.initial-buckets", whole(1, _MOST_BUCKETS), 1, _W,
    "buckets filled at the same time")
DYNAMIC_BUCKET_MAX_BUCKETS = Key("dynamic-bucket.max-buckets", whole(1, _MOST_BUCKETS), None, _W,
    "most buckets of a partition; -1: no limit")
PARTITION_TIMESTAMP_FORMAT_STRICT = Key("partition.timestamp-format.strict", BOOLEAN, False, _W,
    "new partitions must be times")
PARTITION_TIMESTAMP_FORMATTER = Key("partition.timestamp-formatter", TEXT, None, _WM, "Java's pattern of that time")
PARTITION_TIMESTAMP_PATTERN = Key("partition.timestamp-pattern", TEXT, None, _WM,
    "that time from partition columns, `$dt $hour`")
COMMIT_MAX_RETRIES = Key("commit.max-retries", whole(0), 10, _WC, "retries when another commit came first")
COMMIT_MIN_RETRY_WAIT = Key("commit.min-retry-wait", DURATION, 10, _WC, "shortest pause before one")
COMMIT_MAX_RETRY_WAIT = Key("commit.max-retry-wait", DURATION, 10_000, _WC, "longest pause")
COMMIT_TIMEOUT = Key("commit.timeout", DURATION, None, _WC, "longest time of a commit")
COMMIT_USER_PREFIX = Key("commit.user-prefix", TEXT, None, _WC, "prefix of generated commit users")
COMMIT_STRICT_MODE_LAST_SAFE_SNAPSHOT = Key("commit.strict-mode.last-safe-snapshot", whole(), None, _WC,
    "refuses commits to partitions that others rewrote since")
MANIFEST_FORMAT = Key("manifest.format", TEXT, "avro", _WC, "format of manifests; only `avro` is written here")
MANIFEST_COMPRESSION = Key("manifest.compression", TEXT, "zstd", _WC, "codec of manifests")
MANIFEST_TARGET_FILE_SIZE = Key("manifest.target-file-size", SIZE, 8 * _MB, _WC, "size of a full manifest")
MANIFEST_MERGE_MIN_COUNT = Key("manifest.merge-min-count", whole(), 30, _WC, "small manifests at which they are merged")
MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE = Key("manifest.full-compaction-threshold-size", SIZE, 16 * _MB, _WC,
    "size of manifests with deletes at which all merge")
PRECOMMIT_COMPACT = Key("precommit-compact", BOOLEAN, False, _WC,
    "merges small changelog files before a commit", ("changelog.precommit-compact",))
CHANGELOG_PRECOMMIT_COMPACT_BUFFER_SIZE = Key("changelog.precommit-compact.buffer-size", SIZE, 128 * _MB, _WC,
    "largest that is merged")

# Compacting.
NUM_SORTED_RUN_COMPACTION_TRIGGER = Key("num-sorted-run.compaction-trigger", whole(1), 5, _RC,
    "sorted runs at which a bucket is due")
NUM_LEVELS = Key("num-levels", whole(2), None, _RC, "levels; default: `num-sorted-run.compaction-trigger` + 1")
COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT = Key("compaction.max-size-amplification-percent", whole(0), 200, _C,
    "percent of the oldest run; when the others exceed it, the whole bucket is due")
COMPACTION_SIZE_RATIO = Key("compaction.size-ratio", whole(0), 1, _C,
    "percent by which a run may exceed newer ones and join them")
COMPACTION_OFFPEAK_START_HOUR = Key("compaction.offpeak.start.hour", whole(), -1, _C,
    "first hour in which more is compacted; -1: none")
COMPACTION_OFFPEAK_END_HOUR = Key("compaction.offpeak.end.hour", whole(), -1, _C, "the hour after the last one")
COMPACTION_OFFPEAK_RATIO = Key("compaction.offpeak-ratio", whole(), 0, _C,
    "percent added to `compaction.size-ratio` then")
COMPACTION_OPTIMIZATION_INTERVAL = Key("compaction.optimization-interval", DURATION, None, _C,
    "time after which the whole bucket is due")
COMPACTION_TOTAL_SIZE_THRESHOLD = Key("compaction.total-size-threshold", SIZE, None, _C,
    "size below which the whole bucket is due")
COMPACTION_INCREMENTAL_SIZE_THRESHOLD = Key("compaction.incremental-size-threshold", SIZE, None, _C,
    "size below the top level above which the whole bucket is due")
COMPACTION_FORCE_REWRITE_ALL_FILES = Key("compaction.force-rewrite-all-files", BOOLEAN, False, _C,
    "a full compaction rewrites every file")
COMPACTION_FORCE_UP_LEVEL_0 = Key("compaction.force-up-level-0", BOOLEAN, False, _C, "level 0 is always compacted")
COMPACTION_MIN_FILE_NUM = Key("compaction.min.file-num", whole(1), 5, _C, "small files at which an append table is due")
COMPACTION_FILE_NUM_LIMIT = Key("compaction.file-num-limit", whole(1), 100_000, _C,
    "ignored, which is logged: files are picked without a limit")
COMPACTION_SKIP_EXPIRED_PARTITIONS = Key("compaction.skip-expired-partitions", BOOLEAN, False, _C,
    "tables with buckets: leaves out partitions that `partition.expiration-time` expires by their values")
LOOKUP_COMPACT = Key("lookup-compact", one_of("radical", "gentle"), "radical", _C,
    "`gentle` is ignored, which is logged: level 0 is always due")
LOOKUP_COMPACT_MAX_INTERVAL = Key("lookup-compact.max-interval", whole(), None, _C, "ignored, as `lookup-compact` is")
COMPACTION_SMALL_FILE_RATIO = Key("compaction.small-file-ratio", NUMBER, 0.7, _WC,
    "share of the target size below which a file is small")
COMPACTION_DELETE_RATIO_THRESHOLD = Key("compaction.delete-ratio-threshold", NUMBER, 0.2, _C,
    "share of deleted rows above which a file is rewritten")
CHANGELOG_PRODUCER_ROW_DEDUPLICATE = Key("changelog-producer.row-deduplicate", BOOLEAN, False, _C,
    "the changelog omits updates without a change")
CHANGELOG_PRODUCER_ROW_DEDUPLICATE_IGNORE_FIELDS = Key("changelog-producer.row-deduplicate-ignore-fields",
    TEXT, "", _C, "columns that do not count for that")
RECORD_LEVEL_EXPIRE_TIME = Key("record-level.expire-time", DURATION, None, _RC, "compaction drops records of this age")
RECORD_LEVEL_TIME_FIELD = Key("record-level.time-field", TEXT, None, _C, "the column with the time of a record")

# Maintenance, which writers leave to `maintain` and to others.
SNAPSHOT_TIME_RETAINED = Key("snapshot.time-retained", DURATION, 3_600_000, _RWM,
    "age at which a snapshot expires", left_out=_MAINTAIN)
SNAPSHOT_NUM_RETAINED_MIN = Key("snapshot.num-retained.min", whole(1), 10, _RWM,
    "snapshots kept at any age", left_out=_MAINTAIN)
SNAPSHOT_NUM_RETAINED_MAX = Key("snapshot.num-retained.max", whole(1), (1 << 31) - 1, _RWM,
    "most snapshots kept", left_out=_MAINTAIN)
SNAPSHOT_EXPIRE_LIMIT = Key("snapshot.expire.limit", whole(0), 50, _WM,
    "most snapshots that a run of `maintain` expires; no limit unless set", left_out=_MAINTAIN)
CHANGELOG_TIME_RETAINED = Key("changelog.time-retained", DURATION, None, _RWM,
    "as for snapshots, of [changelogs that outlive them](java-semantics.md#long-lived-changelogs)", left_out=_MAINTAIN)
CHANGELOG_NUM_RETAINED_MIN = Key("changelog.num-retained.min", whole(1), None, _RWM,
    "as that of snapshots", left_out=_MAINTAIN)
CHANGELOG_NUM_RETAINED_MAX = Key("changelog.num-retained.max", whole(1), None, _RWM,
    "as that of snapshots", left_out=_MAINTAIN)
TAG_TIME_EXPIRE_ENABLED = Key("tag.time-expire-enabled", BOOLEAN, True, _M,
    "`maintain` deletes tags after their own retention")
TAG_AUTOMATIC_CREATION = Key("tag.automatic-creation",
    one_of("none", "process-time", "watermark", "batch"), "none", _WM,
    "`maintain` creates a [tag](maintenance.md#tags) per period of this time; `batch`: of the latest snapshot",
    left_out=_MAINTAIN)
TAG_CREATION_DELAY = Key("tag.creation-delay", DURATION, 0, _M, "time from a period's end to its tag")
TAG_AUTOMATIC_COMPLETION = Key("tag.automatic-completion", BOOLEAN, False, _M,
    "a period without a snapshot gets a tag of the next one")
TAG_NUM_RETAINED_MAX = Key("tag.num-retained-max", whole(1), None, _M, "most automatic tags that `maintain` keeps")
TAG_DEFAULT_TIME_RETAINED = Key("tag.default-time-retained", DURATION, None, _M,
    "retention of tags created without one")
TAG_CREATE_SUCCESS_FILE = Key("tag.create-success-file", BOOLEAN, False, _M,
    "each tag has a file `tag/tag-success-file/<name>_SUCCESS`")
TAG_BATCH_CUSTOMIZED_NAME = Key("tag.batch.customized-name", TEXT, None, _M,
    "the tag of `batch`; default: `batch-write-<date>`")
SINK_PROCESS_TIME_ZONE = Key("sink.process-time-zone", TEXT, None, _M,
    "time zone of tags by process time; default: the table's")
SINK_WATERMARK_TIME_ZONE = Key("sink.watermark-time-zone", TEXT, "UTC", _M, "time zone of tags by watermark")
TAG_CALLBACKS = Key("tag.callbacks", TEXT, None, _W, left_out=LeftOut("have Java create and delete the tags"))
METASTORE_TAG_TO_PARTITION = Key("metastore.tag-to-partition", TEXT, None, _W, left_out=_COMMIT)
METASTORE_PARTITIONED_TABLE = Key("metastore.partitioned-table", BOOLEAN, False, _W, left_out=_COMMIT)
PARTITION_EXPIRATION_TIME = Key("partition.expiration-time", DURATION, None, _WM,
    "age at which a [partition expires](maintenance.md#partitions)", left_out=_MAINTAIN)
PARTITION_EXPIRATION_STRATEGY = Key("partition.expiration-strategy", one_of("values-time", "update-time"),
    "values-time", _M, "where the age begins: the time in its values, or its last write")
PARTITION_EXPIRATION_MAX_NUM = Key("partition.expiration-max-num", whole(0), 100, _M,
    "most partitions that a run expires")
PARTITION_EXPIRATION_BATCH_SIZE = Key("partition.expiration-batch-size", whole(1), None, _M,
    "most partitions that a commit drops")
PARTITION_IDLE_TIME_TO_DONE = Key("partition.idle-time-to-done", DURATION, None, _WM,
    "time from its end and last write to its [mark as done](maintenance.md#partitions)", left_out=_MARKS)
PARTITION_TIME_INTERVAL = Key("partition.time-interval", DURATION, None, _M, "length of a partition")
PARTITION_MARK_DONE_ACTION = Key("partition.mark-done-action", TEXT, "success-file", _M,
    "others than `success-file` are logged only")
PARTITION_MARK_DONE_ACTION_MODE = Key("partition.mark-done-action.mode", one_of("process-time", "watermark"),
    "process-time", _M, "what passes until a partition is idle: time, or the watermark of the latest snapshot")
_LEFT_OUT = {
    _MAINTAIN: ("snapshot.expire.execution-mode",),
    _COMMIT: (
        "commit.callbacks", "commit.custom-listeners", "metadata.iceberg.storage",
        "partition.idle-time-to-report-statistic",
    ),
    _VISIBLE: ("visibility-callback.enabled",),
    _DONE: ("partition.end-input-to-done",),
}

# Without effect here.
SCAN_REMOVE_NORMALIZE = Key("scan.remove-normalize", TEXT, None,
    meaning="Flink's tasks and operators", aliases=("log.scan.remove-normalize",))
_IGNORED = {
    "Flink's tasks and operators": (
        "scan.infer-parallelism", "scan.infer-parallelism.max", "scan.max-splits-per-task",
        "scan.split-enumerator.batch-size", "scan.split-enumerator.mode", "scan.dedicated-split-generation",
        "streaming-read.shuffle-bucket-with-partition", "consumer.mode",
    ),
    "Flink's event-time watermarks of rows": (
        "scan.watermark.emit.strategy", "scan.watermark.idle-timeout", "scan.watermark.alignment.group",
        "scan.watermark.alignment.max-drift", "scan.watermark.alignment.update-interval",
    ),
    "a batch of Flink; here `with_end(...)` ends a stream": ("scan.bounded",),
    "Flink's MySQL source": ("scan.newly-added-table.enabled",),
    "tags the snapshot of a batch read; use a consumer id": ("scan.plan-auto-tag-for-read.time-retained",),
    "planning of batch reads": ("scan.native-plan.enabled", "scan.manifest.parallelism"),
    "sorting of batch writes of Flink; here compactions sort": ("clustering.incremental.optimize-write",),
    "clustered rows are always sorted as a whole here": ("clustering.incremental.mode",),
    "reads of a fallback branch, which is refused": ("scan.fallback-branch.read-fail-fast",),
    "Flink's sources before 1.0": ("scan.push-down", "streaming-read-mode", "streaming-read-atomic"),
}
# fmt: on

OPTION_KEYS: tuple[OptionKey[Any, Any], ...] = (
    *(each for each in list(globals().values()) if isinstance(each, OptionKey)),
    *(OptionKey(name, TEXT, None, _W, left_out=why) for why, names in _LEFT_OUT.items() for name in names),
    *(OptionKey(name, TEXT, None, meaning=why) for why, names in _IGNORED.items() for name in names),
)
"""All of them."""


@cache
def known_names(use: Use = _RWC | _M) -> frozenset[str]:
    """The names and aliases of options for a use, and of those without effect; those of fields as `fields.<option>`."""
    chosen = (each for each in OPTION_KEYS if not each.use or each.use & use)
    names = (name for each in chosen for name in (each.name, *each.aliases))
    plain = (re.sub(r"^fields\.#\.(.*\.)?", "fields.", name) for name in names)
    return frozenset(name for name in plain if "#" not in name)
