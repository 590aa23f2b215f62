"""Every option of a table that this library knows: the one place for names, kinds, defaults and former names.

A constant is called like its option, without the `#` that stands for a field; `option_keys.MERGE_ENGINE.of(options)` is
its value. The table in docs/options.md, the check of misspelled keys, the options that Spark and the command line
accept, and the completion of the latter all come from here. Meanings are Markdown, for that table.
"""

from __future__ import annotations

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
from pypaimon.streaming.options.table_kinds import BetweenMode, BucketFunctionType, ChangelogProducer, MergeEngineKind

_R, _W, _C = Use.READ, Use.WRITE, Use.COMPACT
_RW, _RC, _WC, _RWC = _R | _W, _R | _C, _W | _C, _R | _W | _C
_MB = 1 << 20
_MOST_BUCKETS = (1 << 15) - 1
_START_WORDS = one_of(
    "default", "latest-full", "full", "latest", "latest-delta", "compacted-full", "from-timestamp",
    "from-creation-timestamp", "from-file-creation-time", "from-snapshot", "from-snapshot-full", "incremental",
)  # fmt: skip
_SNAPSHOTS, _CHANGELOGS = LeftOut("run expire_snapshots"), LeftOut("run expire_changelogs")
_TAGS, _OLD_TAGS = LeftOut("run trigger_tag_automatic_creation"), LeftOut("run expire_tags")
_DONE, _COMMIT = LeftOut("run mark_partition_done", True), LeftOut("have Java commit", True)
_VISIBLE = LeftOut("have Java commit, which waits until the rows are visible", True)
_BETWEEN = "refused by streams, as in Java: use [`between(...)`](reading.md#between-two-moments), or a batch of Spark"
_START = "where a stream begins: [starts](reading.md#where-a-stream-starts)"
_OTHER_BRANCH = "refused: a stream follows one branch"
_CHAIN = "[chain tables](java-semantics.md#chain-tables)"

# fmt: off
# The kind of the table.
MERGE_ENGINE = OptionKey("merge-engine", member(MergeEngineKind), MergeEngineKind.DEDUPLICATE, _RWC,
    "how records with one key are merged")
CHANGELOG_PRODUCER = OptionKey("changelog-producer", member(ChangelogProducer), ChangelogProducer.NONE, _RWC,
    "who writes changelog files")
BRANCH = OptionKey("branch", TEXT, None, _RW, "the branch; `db.table$branch_<name>` names it too")
BUCKET = OptionKey("bucket", whole(), -1, _RWC,
    "number of buckets; -1: dynamic with a primary key, none without; -2: postponed")
BUCKET_KEY = OptionKey("bucket-key", TEXT, None, _RW,
    "columns whose values decide the bucket of a row, separated by commas")
BUCKET_FUNCTION_TYPE = OptionKey("bucket-function.type", member(BucketFunctionType), BucketFunctionType.DEFAULT, _RW,
    "how the bucket key becomes a bucket; `hive` is not written")
DELETION_VECTORS_ENABLED = OptionKey("deletion-vectors.enabled", BOOLEAN, False, _RWC,
    "replaced rows are marked in index files")
DELETION_VECTORS_BITMAP64 = OptionKey("deletion-vectors.bitmap64", BOOLEAN, False, _C, "deletion vectors of 64 bits")
DATA_EVOLUTION_ENABLED = OptionKey("data-evolution.enabled", BOOLEAN, False, _RWC,
    "later commits may write columns of existing rows; not compacted here")
ROW_TRACKING_ENABLED = OptionKey("row-tracking.enabled", BOOLEAN, False, _RWC, "rows have ids; not compacted here")
ROW_TRACKING_PARTITION_GROUP_ON_COMMIT = OptionKey("row-tracking.partition-group-on-commit", BOOLEAN, True, _W,
    "the row ids of a partition are consecutive in each commit")
PK_CLUSTERING_OVERRIDE = OptionKey("pk-clustering-override", BOOLEAN, False, _RC,
    "files are clustered by other columns than the key; not compacted here")
CLUSTERING_INCREMENTAL = OptionKey("clustering.incremental", BOOLEAN, False, _C,
    "files are clustered; not compacted here")
CHAIN_TABLE_ENABLED = OptionKey("chain-table.enabled", BOOLEAN, False, _RWC, _CHAIN)
CHAIN_TABLE_CHAIN_PARTITION_KEYS = OptionKey("chain-table.chain-partition-keys", TEXT, None, _R, _CHAIN)
CHAIN_TABLE_STREAMING_MERGE_SNAPSHOT = OptionKey("chain-table.streaming.merge-snapshot", BOOLEAN, False, _R, _CHAIN)
SCAN_FALLBACK_SNAPSHOT_BRANCH = OptionKey("scan.fallback-snapshot-branch", TEXT, None, _R, _CHAIN)
SCAN_FALLBACK_DELTA_BRANCH = OptionKey("scan.fallback-delta-branch", TEXT, None, _RW, _CHAIN)
SCAN_FALLBACK_BRANCH = OptionKey("scan.fallback-branch", TEXT, None, _R, _OTHER_BRANCH)
SCAN_PRIMARY_BRANCH = OptionKey("scan.primary-branch", TEXT, None, _R, _OTHER_BRANCH)
QUERY_AUTH_ENABLED = OptionKey("query-auth.enabled", BOOLEAN, False, _R,
    "a REST catalog filters rows and masks columns")
STREAM_SCAN_MODE = OptionKey("stream-scan-mode", TEXT, None, _R, "refused: it is internal to Java's compaction jobs")
TIME_ZONE = OptionKey(time_zone.TIME_ZONE, TEXT, None, _RWC,
    "the [time zone](java-semantics.md#time-zones) of the table's readers and writers, which Java takes from its "
    "JVM; default: that of the process. An option of this library; Java ignores it")

# Merging.
SEQUENCE_FIELD = OptionKey("sequence.field", TEXT, None, _RWC,
    "columns by which the newer one of two records is found, separated by commas")
SEQUENCE_FIELD_SORT_ORDER = OptionKey("sequence.field.sort-order", one_of("ascending", "descending"), "ascending", _RWC,
    "whether the greater or the smaller value of these is newer")
SEQUENCE_SNAPSHOT_ORDERING = OptionKey("sequence.snapshot-ordering", BOOLEAN, False, _RWC,
    "the record of the later snapshot is newer; not compacted here")
ROWKIND_FIELD = OptionKey("rowkind.field", TEXT, None, _RW, "the column with the kind of each row")
IGNORE_DELETE = OptionKey("ignore-delete", BOOLEAN, False, _RWC, "-D and -U records are ignored",
    ("first-row.ignore-delete", "deduplicate.ignore-delete", "partial-update.ignore-delete"))
IGNORE_UPDATE_BEFORE = OptionKey("ignore-update-before", BOOLEAN, False, _W, "-U records are not written")
FORCE_LOOKUP = OptionKey("force-lookup", BOOLEAN, False, _RC, "compaction merges records of level 0 with those above")
AGGREGATION_REMOVE_RECORD_ON_DELETE = OptionKey("aggregation.remove-record-on-delete", BOOLEAN, False, _RC,
    "a -D record deletes the row of merge engine aggregation")
PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE = OptionKey("partial-update.remove-record-on-delete", BOOLEAN, False, _RC,
    "a -D record deletes the row of merge engine partial-update")
PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP = OptionKey("partial-update.remove-record-on-sequence-group",
    TEXT, None, _RC, "the sequence groups whose -D records delete the row")
FIELDS_DEFAULT_AGGREGATE_FUNCTION = OptionKey("fields.default-aggregate-function", TEXT, None, _RC,
    "the function of fields without one of their own")
FIELDS_AGGREGATE_FUNCTION = OptionKey("fields.#.aggregate-function", TEXT, None, _RC,
    "the aggregate function of a field")
FIELDS_IGNORE_RETRACT = OptionKey("fields.#.ignore-retract", BOOLEAN, False, _RC,
    "-U and -D records leave the aggregate as it is")
FIELDS_DISTINCT = OptionKey("fields.#.distinct", BOOLEAN, False, _RC, "`listagg`, `collect`: each value once")
FIELDS_LIST_AGG_DELIMITER = OptionKey("fields.#.list-agg-delimiter", TEXT, ",", _RC, "`listagg`: what separates values")
FIELDS_COUNT_LIMIT = OptionKey("fields.#.count-limit", whole(), (1 << 31) - 1, _RC,
    "`nested_update`: rows that are kept at most")
FIELDS_NESTED_KEY = OptionKey("fields.#.nested-key", TEXT, None, _RC, "`nested_update`: the key of the nested rows")
FIELDS_NESTED_KEY_NULL_STRATEGY = OptionKey("fields.#.nested-key-null-strategy",
    one_of("merge", "ignore", "error"), "merge", _RC, "`nested_update`: what happens to nested rows whose key is null")
FIELDS_NESTED_SEQUENCE_FIELD = OptionKey("fields.#.nested-sequence-field", TEXT, None, _RC,
    "`nested_update`: columns by which the newer one of two nested rows is found")
FIELDS_SEQUENCE_GROUP = OptionKey("fields.#.sequence-group", TEXT, None, _RC,
    "the fields that are updated by the sequence of this one")
FIELDS_TS_FIELD = OptionKey("fields.#.ts-field", TEXT, None, _RC,
    "`merge_map_with_keytime`: the field of times; default: the last one")

# Where streams and batches begin, what they read, and how far.
SCAN_MODE = OptionKey("scan.mode", _START_WORDS, "default", _R, _START, ("log.scan",))
SCAN_TIMESTAMP_MILLIS = OptionKey("scan.timestamp-millis", whole(), None, _R, _START, ("log.scan.timestamp-millis",))
SCAN_TIMESTAMP = OptionKey("scan.timestamp", LOCAL_TIME, None, _R, _START)
SCAN_SNAPSHOT_ID = OptionKey("scan.snapshot-id", whole(), None, _R, _START)
SCAN_VERSION = OptionKey("scan.version", TEXT, None, _R, _START)
SCAN_FILE_CREATION_TIME_MILLIS = OptionKey("scan.file-creation-time-millis", whole(), None, _R, _START)
SCAN_CREATION_TIME_MILLIS = OptionKey("scan.creation-time-millis", whole(), None, _R, _START)
SCAN_TAG_NAME = OptionKey("scan.tag-name", TEXT, None, _R,
    "refused by streams, as in Java; `with_start(tag=...)` begins at a tag")
SCAN_WATERMARK = OptionKey("scan.watermark", whole(), None, _R, "refused, as by Java's streams")
INCREMENTAL_BETWEEN = OptionKey("incremental-between", TEXT, None, _R, _BETWEEN)
INCREMENTAL_BETWEEN_TIMESTAMP = OptionKey("incremental-between-timestamp", TEXT, None, _R, _BETWEEN)
INCREMENTAL_TO_AUTO_TAG = OptionKey("incremental-to-auto-tag", TEXT, None, _R, _BETWEEN)
INCREMENTAL_BETWEEN_SCAN_MODE = OptionKey("incremental-between-scan-mode", member(BetweenMode), BetweenMode.AUTO, _R,
    "how Spark's batches read such a range; ignored by streams")
INCREMENTAL_BETWEEN_TAG_TO_SNAPSHOT = OptionKey("incremental-between-tag-to-snapshot", BOOLEAN, False, _R,
    "tags of such a range stand for the ids of their snapshots; ignored by streams")
TAG_CREATION_PERIOD = OptionKey("tag.creation-period", one_of("daily", "hourly", "two-hours"), "daily", _R,
    "how automatic tags are named, for `incremental-to-auto-tag`")
TAG_CREATION_PERIOD_DURATION = OptionKey("tag.creation-period-duration", DURATION, None, _R,
    "how automatic tags are named, for `incremental-to-auto-tag`")
TAG_PERIOD_FORMATTER = OptionKey("tag.period-formatter",
    one_of("with-dashes", "without-dashes", "without-dashes-and-spaces"), "with-dashes", _R, "how automatic tags are "
    "named, for `incremental-to-auto-tag`")
SCAN_BOUNDED_WATERMARK = OptionKey("scan.bounded.watermark", whole(), None, _R,
    "the stream ends before the first snapshot with a greater watermark")
SCAN_BUCKET = OptionKey("scan.bucket", whole(), None, _R, "only this bucket is read")
SCAN_PARTITIONS = OptionKey("scan.partitions", TEXT, None, _R,
    "only [these partitions](writing.md#name-a-partition) are read, `day=2026-11-21;day=2026-11-22`. "
    "`with_filter(...)` applies in addition. `max_pt()` and `max_two_pt()` are refused, because the greatest "
    "partition may be another one at the next start")
SCAN_MAX_SNAPSHOT_COUNT = OptionKey("scan.max-snapshot.count", whole(), None, _R,
    "at most this many plans are given before they are confirmed")
SCAN_PLAN_SORT_PARTITION = OptionKey("scan.plan-sort-partition", BOOLEAN, False, _R,
    "the splits of a plan are ordered by partition")
SCAN_IGNORE_CORRUPT_FILES = OptionKey("scan.ignore-corrupt-files", BOOLEAN, False, _R,
    "unreadable data files are skipped, with a warning in the log")
SCAN_IGNORE_LOST_FILES = OptionKey("scan.ignore-lost-files", BOOLEAN, False, _R,
    "lost data files are skipped, with a warning in the log")
SCAN_PARALLELISM = OptionKey("scan.parallelism", whole(1), None, _R,
    "tasks of a read of [Spark](spark.md); default: the processors of the machine")
STREAMING_READ_OVERWRITE = OptionKey("streaming-read-overwrite", BOOLEAN, False, _R,
    "OVERWRITE snapshots of tables with a primary key are read")
STREAMING_READ_APPEND_OVERWRITE = OptionKey("streaming-read-append-overwrite", BOOLEAN, False, _R,
    "OVERWRITE snapshots of append tables are read")
STREAMING_READ_SNAPSHOT_DELAY = OptionKey("streaming.read.snapshot.delay", DURATION, 0, _R,
    "a snapshot is held back until it has this age")
CONTINUOUS_DISCOVERY_INTERVAL = OptionKey("continuous.discovery-interval", duration(1), 1000, _R,
    "pause between polls; Java's default is 10 s")
CONSUMER_ID = OptionKey("consumer-id", TEXT, None, _R, "progress is saved under this name: [consumers](consumers.md)")
CONSUMER_IGNORE_PROGRESS = OptionKey("consumer.ignore-progress", BOOLEAN, False, _R,
    "the stream does not begin at the saved progress")
CONSUMER_EXPIRATION_TIME = OptionKey("consumer.expiration-time", DURATION, None, _RW,
    "age after the last save at which Java's writers delete a consumer",
    left_out=LeftOut("run paimon-stream consumers delete"))
CONSUMER_CHANGELOG_ONLY = OptionKey("consumer.changelog-only", BOOLEAN, False, _R,
    "consumers keep changelogs, not snapshots")
SOURCE_SPLIT_TARGET_SIZE = OptionKey("source.split.target-size", SIZE, 128 * _MB, _R,
    "files are packed into splits up to this size")
SOURCE_SPLIT_OPEN_FILE_COST = OptionKey("source.split.open-file-cost", SIZE, 4 * _MB, _RC,
    "least size that a file counts as when it is packed")
FILE_INDEX_READ_ENABLED = OptionKey("file-index.read.enabled", BOOLEAN, True, _R,
    "[file indexes](java-semantics.md#file-indexes) may drop files")
FULL_COMPACTION_DELTA_COMMITS = OptionKey("full-compaction.delta-commits", whole(), None, _R,
    "commits between two full compactions of a Java writer")
TABLE_READ_SEQUENCE_NUMBER_ENABLED = OptionKey("table-read.sequence-number.enabled", BOOLEAN, False, _R,
    "`$audit_log` and `$binlog` have a column of sequence numbers")

# Where files are, and their formats.
PARTITION_DEFAULT_NAME = OptionKey("partition.default-name", TEXT, "__DEFAULT_PARTITION__", _RW,
    "the name of null in the directories of partitions")
PARTITION_LEGACY_NAME = OptionKey("partition.legacy-name", BOOLEAN, True, _RW,
    "directories of partitions have Java's older names of dates and times")
DATA_FILE_PATH_DIRECTORY = OptionKey("data-file.path-directory", TEXT, None, _RW,
    "directory of data files inside the table's")
INDEX_FILE_IN_DATA_FILE_DIR = OptionKey("index-file-in-data-file-dir", BOOLEAN, False, _RW,
    "index files are in the directories of buckets")
DATA_FILE_EXTERNAL_PATHS = OptionKey("data-file.external-paths", TEXT, None, _W,
    "directories outside of the table for new data files")
DATA_FILE_EXTERNAL_PATHS_STRATEGY = OptionKey("data-file.external-paths.strategy", TEXT, "none", _W,
    "how one of these directories is chosen")
DATA_FILE_EXTERNAL_PATHS_SPECIFIC_FS = OptionKey("data-file.external-paths.specific-fs", TEXT, None, _W,
    "the file system whose directories are chosen")
DATA_FILE_PREFIX = OptionKey("data-file.prefix", TEXT, "data-", _WC, "prefix of the names of data files")
DATA_FILE_THIN_MODE = OptionKey("data-file.thin-mode", BOOLEAN, False, _RWC,
    "data files do not repeat the columns of the key")
CHANGELOG_FILE_PREFIX = OptionKey("changelog-file.prefix", TEXT, "changelog-", _WC,
    "prefix of the names of changelog files")
CHANGELOG_FILE_FORMAT = OptionKey("changelog-file.format", TEXT, None, _WC,
    "format of changelog files; default: that of data files")
CHANGELOG_FILE_COMPRESSION = OptionKey("changelog-file.compression", TEXT, None, _WC,
    "codec of changelog files; default: that of data files")
CHANGELOG_FILE_STATS_MODE = OptionKey("changelog-file.stats-mode", TEXT, None, _WC,
    "statistics of changelog files; default: those of data files")
FILE_FORMAT = OptionKey("file.format", TEXT, None, _WC,
    "format of data files; default: `parquet`, `avro` for postponed buckets")
FILE_FORMAT_PER_LEVEL = OptionKey("file.format.per.level", TEXT, None, _WC, "formats of levels, `0:avro,3:parquet`")
FILE_COMPRESSION = OptionKey("file.compression", TEXT, "zstd", _WC, "codec of data files")
FILE_COMPRESSION_PER_LEVEL = OptionKey("file.compression.per.level", TEXT, None, _WC,
    "codecs of levels, `0:lz4,3:zstd`")
FILE_COMPRESSION_ZSTD_LEVEL = OptionKey("file.compression.zstd-level", whole(), 1, _WC, "level of the codec zstd")
FILE_SUFFIX_INCLUDE_COMPRESSION = OptionKey("file.suffix.include.compression", BOOLEAN, False, _WC,
    "names of files contain the codec")
PARQUET_WRITE_PAGE_INDEX_ENABLED = OptionKey("parquet.write-page-index.enabled", BOOLEAN, True, _WC,
    "Parquet files have a page index. An option of this library")
ORC_TIMESTAMP_LTZ_LEGACY_TYPE = OptionKey("orc.timestamp-ltz.legacy.type", BOOLEAN, True, _RWC,
    "Java's ORC files [depend on its time zone](java-semantics.md#time-zones)")
METADATA_STATS_MODE = OptionKey("metadata.stats-mode", TEXT, "truncate(16)", _WC,
    "statistics of columns: `none`, `counts`, `full` or `truncate(n)`")
METADATA_STATS_MODE_PER_LEVEL = OptionKey("metadata.stats-mode.per.level", TEXT, None, _WC,
    "statistics of levels, `0:none`")
METADATA_STATS_KEEP_FIRST_N_COLUMNS = OptionKey("metadata.stats-keep-first-n-columns", whole(), -1, _WC,
    "only this many columns have statistics; -1: all")
METADATA_STATS_DENSE_STORE = OptionKey("metadata.stats-dense-store", BOOLEAN, True, _WC,
    "columns without statistics are left out")
FIELDS_STATS_MODE = OptionKey("fields.#.stats-mode", TEXT, None, _WC, "statistics of a column")
FILE_INDEX_IN_MANIFEST_THRESHOLD = OptionKey("file-index.in-manifest-threshold", SIZE, 500, _WC,
    "up to this size, file indexes are in the manifest")
FILE_INDEX_COLUMNS = OptionKey("file-index.#.columns", TEXT, None, _RWC,
    "columns with a [file index](java-semantics.md#file-indexes) of this kind")
FILE_INDEX_BLOOM_FILTER_ITEMS = OptionKey("file-index.bloom-filter.#.items", whole(), 1_000_000, _WC,
    "expected number of values")
FILE_INDEX_BLOOM_FILTER_FPP = OptionKey("file-index.bloom-filter.#.fpp", TEXT, "0.1", _WC, "share of false positives")
FILE_INDEX_BITMAP_VERSION = OptionKey("file-index.bitmap.#.version", whole(), 2, _WC, "version of the index, 1 or 2")
FILE_INDEX_BITMAP_INDEX_BLOCK_SIZE = OptionKey("file-index.bitmap.#.index-block-size", SIZE, 16 << 10, _WC,
    "size of the blocks of version 2")

# Blobs.
BLOB_AS_DESCRIPTOR = OptionKey("blob-as-descriptor", BOOLEAN, False, _RW,
    "[blobs](reading.md#blobs) are read and given as descriptors of their place")
BLOB_DESCRIPTOR_FIELD = OptionKey("blob-descriptor-field", TEXT, None, _RW,
    "columns whose data files hold descriptors", ("blob.stored-descriptor-fields",))
BLOB_VIEW_FIELD = OptionKey("blob-view-field", TEXT, None, _RW,
    "columns whose data files hold references to rows of other tables")
BLOB_VIEW_RESOLVE_ENABLED = OptionKey("blob-view.resolve.enabled", BOOLEAN, True, _R, "these references are resolved")
BLOB_TARGET_FILE_SIZE = OptionKey("blob.target-file-size", SIZE, None, _W,
    "a new blob file ends at this size; default: `target-file-size`")
VIDEO_FRAME_FIELD = OptionKey("video-frame-field", TEXT, None, _W, "refused: frames of videos are not written here")

# Writing and committing.
WRITE_BUFFER_SIZE = OptionKey("write-buffer-size", SIZE, 256 * _MB, _W,
    "rows in memory before they are written to files")
WRITE_ONLY = OptionKey("write-only", BOOLEAN, False, _WC, "writers do no maintenance")
WRITE_SEQUENCE_NUMBER_INIT_MODE = OptionKey("write.sequence-number-init-mode", TEXT, None, _W,
    "`snapshot`: the greatest sequence number is in the snapshot")
TARGET_FILE_SIZE = OptionKey("target-file-size", SIZE, None, _WC,
    "a new file ends at this size; default: 128 mb with a primary key, 256 mb without")
TARGET_FILE_ROW_NUM = OptionKey("target-file-row-num", whole(1), None, _WC, "a new file ends with this many rows")
DYNAMIC_PARTITION_OVERWRITE = OptionKey("dynamic-partition-overwrite", BOOLEAN, True, _W,
    "an overwrite replaces only the partitions that it writes")
DYNAMIC_BUCKET_TARGET_ROW_NUM = OptionKey("dynamic-bucket.target-row-num", whole(1, (1 << 63) - 1), 2_000_000, _W,
    "keys of a full bucket")
DYNAMIC_BUCKET_INITIAL_BUCKETS = OptionKey("dynamic-bucket.initial-buckets", whole(1, _MOST_BUCKETS), 1, _W,
    "buckets that are filled at the same time")
DYNAMIC_BUCKET_MAX_BUCKETS = OptionKey("dynamic-bucket.max-buckets", whole(1, _MOST_BUCKETS), None, _W,
    "buckets of a partition at most; -1: no limit")
PARTITION_TIMESTAMP_FORMAT_STRICT = OptionKey("partition.timestamp-format.strict", BOOLEAN, False, _W,
    "values of new partitions must be a time")
PARTITION_TIMESTAMP_FORMATTER = OptionKey("partition.timestamp-formatter", TEXT, None, _W,
    "Java's pattern of that time")
PARTITION_TIMESTAMP_PATTERN = OptionKey("partition.timestamp-pattern", TEXT, None, _W,
    "how partition columns make that time, `$dt $hour`")
COMMIT_MAX_RETRIES = OptionKey("commit.max-retries", whole(0), 10, _WC,
    "attempts after a commit of another writer came first")
COMMIT_MIN_RETRY_WAIT = OptionKey("commit.min-retry-wait", DURATION, 10, _WC, "pause before the first of them")
COMMIT_MAX_RETRY_WAIT = OptionKey("commit.max-retry-wait", DURATION, 10_000, _WC, "longest pause between them")
COMMIT_TIMEOUT = OptionKey("commit.timeout", DURATION, None, _WC, "time after which a commit is given up")
COMMIT_USER_PREFIX = OptionKey("commit.user-prefix", TEXT, None, _WC,
    "prefix of commit users that the library makes up")
COMMIT_STRICT_MODE_LAST_SAFE_SNAPSHOT = OptionKey("commit.strict-mode.last-safe-snapshot", whole(), None, _WC,
    "commits to partitions that others rewrote since this snapshot are refused")
MANIFEST_FORMAT = OptionKey("manifest.format", TEXT, "avro", _WC, "format of manifests; only `avro` is written here")
MANIFEST_COMPRESSION = OptionKey("manifest.compression", TEXT, "zstd", _WC, "codec of manifests")
MANIFEST_TARGET_FILE_SIZE = OptionKey("manifest.target-file-size", SIZE, 8 * _MB, _WC, "size of a full manifest")
MANIFEST_MERGE_MIN_COUNT = OptionKey("manifest.merge-min-count", whole(), 30, _WC,
    "number of small manifests at which they are merged")
MANIFEST_FULL_COMPACTION_THRESHOLD_SIZE = OptionKey("manifest.full-compaction-threshold-size", SIZE, 16 * _MB, _WC,
    "size of manifests with deletes at which all are merged")
PRECOMMIT_COMPACT = OptionKey("precommit-compact", BOOLEAN, False, _WC,
    "small changelog files are merged before a commit", ("changelog.precommit-compact",))
CHANGELOG_PRECOMMIT_COMPACT_BUFFER_SIZE = OptionKey("changelog.precommit-compact.buffer-size", SIZE, 128 * _MB, _WC,
    "larger changelog files are not merged")

# Compacting.
NUM_SORTED_RUN_COMPACTION_TRIGGER = OptionKey("num-sorted-run.compaction-trigger", whole(1), 5, _RC,
    "sorted runs at which a bucket is compacted")
NUM_LEVELS = OptionKey("num-levels", whole(2), None, _RC,
    "levels of a bucket; default: `num-sorted-run.compaction-trigger` + 1")
COMPACTION_MAX_SIZE_AMPLIFICATION_PERCENT = OptionKey("compaction.max-size-amplification-percent", whole(0), 200, _C,
    "size of all other runs in percent of the oldest one, above which a whole bucket is compacted")
COMPACTION_SIZE_RATIO = OptionKey("compaction.size-ratio", whole(0), 1, _C,
    "percent by which a run may exceed the newer ones together and still be compacted with them")
COMPACTION_OFFPEAK_START_HOUR = OptionKey("compaction.offpeak.start.hour", whole(), -1, _C,
    "first hour of the day at which more is compacted; -1: none")
COMPACTION_OFFPEAK_END_HOUR = OptionKey("compaction.offpeak.end.hour", whole(), -1, _C,
    "the hour before which that ends")
COMPACTION_OFFPEAK_RATIO = OptionKey("compaction.offpeak-ratio", whole(), 0, _C,
    "percent that are added to `compaction.size-ratio` then")
COMPACTION_OPTIMIZATION_INTERVAL = OptionKey("compaction.optimization-interval", DURATION, None, _C,
    "time after which a whole bucket is compacted")
COMPACTION_TOTAL_SIZE_THRESHOLD = OptionKey("compaction.total-size-threshold", SIZE, None, _C,
    "size below which a whole bucket is compacted")
COMPACTION_INCREMENTAL_SIZE_THRESHOLD = OptionKey("compaction.incremental-size-threshold", SIZE, None, _C,
    "size below the top level above which a whole bucket is compacted")
COMPACTION_FORCE_REWRITE_ALL_FILES = OptionKey("compaction.force-rewrite-all-files", BOOLEAN, False, _C,
    "a full compaction rewrites every file")
COMPACTION_FORCE_UP_LEVEL_0 = OptionKey("compaction.force-up-level-0", BOOLEAN, False, _C,
    "files of level 0 are always compacted")
COMPACTION_MIN_FILE_NUM = OptionKey("compaction.min.file-num", whole(1), 5, _C,
    "small files at which an append table is compacted")
COMPACTION_SMALL_FILE_RATIO = OptionKey("compaction.small-file-ratio", NUMBER, 0.7, _WC,
    "part of the target size below which a file is small")
COMPACTION_DELETE_RATIO_THRESHOLD = OptionKey("compaction.delete-ratio-threshold", NUMBER, 0.2, _C,
    "a file of which a greater part is deleted is rewritten")
CHANGELOG_PRODUCER_ROW_DEDUPLICATE = OptionKey("changelog-producer.row-deduplicate", BOOLEAN, False, _C,
    "updates that change nothing are not in the changelog")
CHANGELOG_PRODUCER_ROW_DEDUPLICATE_IGNORE_FIELDS = OptionKey("changelog-producer.row-deduplicate-ignore-fields",
    TEXT, "", _C, "columns whose changes do not count for that")
RECORD_LEVEL_EXPIRE_TIME = OptionKey("record-level.expire-time", DURATION, None, _RC,
    "compaction drops records of this age")
RECORD_LEVEL_TIME_FIELD = OptionKey("record-level.time-field", TEXT, None, _C, "the column with the time of a record")

# Maintenance, which is left to others.
SNAPSHOT_TIME_RETAINED = OptionKey("snapshot.time-retained", DURATION, 3_600_000, _RW, left_out=_SNAPSHOTS)
SNAPSHOT_NUM_RETAINED_MIN = OptionKey("snapshot.num-retained.min", whole(), 10, _RW, left_out=_SNAPSHOTS)
SNAPSHOT_NUM_RETAINED_MAX = OptionKey("snapshot.num-retained.max", whole(), (1 << 31) - 1, _RW, left_out=_SNAPSHOTS)
SNAPSHOT_EXPIRE_LIMIT = OptionKey("snapshot.expire.limit", TEXT, None, _W, left_out=_SNAPSHOTS)
SNAPSHOT_EXPIRE_EXECUTION_MODE = OptionKey("snapshot.expire.execution-mode", TEXT, None, _W, left_out=_SNAPSHOTS)
CHANGELOG_TIME_RETAINED = OptionKey("changelog.time-retained", DURATION, None, _RW, left_out=_CHANGELOGS)
CHANGELOG_NUM_RETAINED_MIN = OptionKey("changelog.num-retained.min", whole(), None, _RW, left_out=_CHANGELOGS)
CHANGELOG_NUM_RETAINED_MAX = OptionKey("changelog.num-retained.max", whole(), None, _RW, left_out=_CHANGELOGS)
TAG_AUTOMATIC_CREATION = OptionKey("tag.automatic-creation", TEXT, None, _W, left_out=_TAGS)
TAG_AUTOMATIC_COMPLETION = OptionKey("tag.automatic-completion", TEXT, None, _W, left_out=_TAGS)
TAG_CALLBACKS = OptionKey("tag.callbacks", TEXT, None, _W, left_out=_TAGS)
TAG_CREATE_SUCCESS_FILE = OptionKey("tag.create-success-file", TEXT, None, _W, left_out=_TAGS)
TAG_DEFAULT_TIME_RETAINED = OptionKey("tag.default-time-retained", TEXT, None, _W, left_out=_OLD_TAGS)
TAG_NUM_RETAINED_MAX = OptionKey("tag.num-retained-max", TEXT, None, _W, left_out=_OLD_TAGS)
PARTITION_EXPIRATION_TIME = OptionKey("partition.expiration-time", TEXT, None, _W,
    left_out=LeftOut("run expire_partitions"))
COMMIT_CALLBACKS = OptionKey("commit.callbacks", TEXT, None, _W, left_out=_COMMIT)
COMMIT_CUSTOM_LISTENERS = OptionKey("commit.custom-listeners", TEXT, None, _W, left_out=_COMMIT)
METADATA_ICEBERG_STORAGE = OptionKey("metadata.iceberg.storage", TEXT, None, _W, left_out=_COMMIT)
METASTORE_PARTITIONED_TABLE = OptionKey("metastore.partitioned-table", TEXT, None, _W, left_out=_COMMIT)
METASTORE_TAG_TO_PARTITION = OptionKey("metastore.tag-to-partition", TEXT, None, _W, left_out=_COMMIT)
PARTITION_IDLE_TIME_TO_REPORT_STATISTIC = OptionKey("partition.idle-time-to-report-statistic", TEXT, None, _W,
    left_out=_COMMIT)
VISIBILITY_CALLBACK_ENABLED = OptionKey("visibility-callback.enabled", TEXT, None, _W, left_out=_VISIBLE)
PARTITION_IDLE_TIME_TO_DONE = OptionKey("partition.idle-time-to-done", TEXT, None, _W, left_out=_DONE)
PARTITION_END_INPUT_TO_DONE = OptionKey("partition.end-input-to-done", TEXT, None, _W, left_out=_DONE)

# Without effect here.
SCAN_REMOVE_NORMALIZE = OptionKey("scan.remove-normalize", TEXT, None,
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
    "whether Flink plans a batch instead of a stream; here `with_end(...)` ends a stream": ("scan.bounded",),
    "Flink's MySQL source": ("scan.newly-added-table.enabled",),
    "tags the snapshot of a batch read; use a consumer id": ("scan.plan-auto-tag-for-read.time-retained",),
    "planning of batch reads": ("scan.native-plan.enabled", "scan.manifest.parallelism"),
    "reads of a fallback branch, which is refused": ("scan.fallback-branch.read-fail-fast",),
    "Flink's sources before 1.0": ("scan.push-down", "streaming-read-mode", "streaming-read-atomic"),
}
# fmt: on

OPTION_KEYS: tuple[OptionKey[Any, Any], ...] = (
    *(each for each in list(globals().values()) if isinstance(each, OptionKey)),
    *(OptionKey(name, TEXT, None, meaning=why) for why, names in _IGNORED.items() for name in names),
)
"""All of them."""


def known_names(use: Use = _RWC) -> frozenset[str]:
    """The names and aliases of options for a use, and of those without effect; those of fields as `fields.<option>`."""
    chosen = (each for each in OPTION_KEYS if not each.use or each.use & use)
    names = frozenset(name.replace("fields.#.", "fields.") for each in chosen for name in (each.name, *each.aliases))
    return frozenset(name for name in names if "#" not in name)
