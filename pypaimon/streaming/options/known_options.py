"""Which keys of table options mean something here, and which ones are misspelled.

Tables keep options of older releases, of engines, catalogs and users, which are not known here. So an unknown key
passes, with two exceptions: a key that begins like an option of a stream, and a key that is spelled almost like one
that means something here (`spelling`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.spelling import Spellings

_PREFIXES = ("scan.", "incremental-", "streaming-read", "streaming.read.")
_WITH_A_MEANING = """
    scan.mode scan.timestamp-millis scan.timestamp scan.snapshot-id scan.tag-name scan.watermark scan.version
    scan.file-creation-time-millis scan.creation-time-millis
    incremental-between incremental-between-timestamp incremental-to-auto-tag
    incremental-between-scan-mode incremental-between-tag-to-snapshot
    scan.bounded.watermark scan.bucket scan.partitions scan.max-snapshot.count scan.plan-sort-partition
    scan.ignore-corrupt-files scan.ignore-lost-files
    scan.fallback-branch scan.primary-branch scan.fallback-snapshot-branch scan.fallback-delta-branch
    streaming-read-overwrite streaming-read-append-overwrite streaming.read.snapshot.delay
"""
_OF_OTHER_ENGINES = """
    scan.bounded scan.parallelism scan.infer-parallelism scan.infer-parallelism.max
    scan.max-splits-per-task scan.split-enumerator.batch-size scan.split-enumerator.mode
    scan.dedicated-split-generation scan.remove-normalize scan.watermark.emit.strategy scan.watermark.idle-timeout
    scan.watermark.alignment.group scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval
    streaming-read.shuffle-bucket-with-partition scan.newly-added-table.enabled
    scan.plan-auto-tag-for-read.time-retained scan.native-plan.enabled scan.manifest.parallelism
    scan.fallback-branch.read-fail-fast
"""
_OF_FORMER_RELEASES = "scan.push-down streaming-read-mode streaming-read-atomic"

KNOWN_STREAM_KEYS = frozenset(f"{_WITH_A_MEANING} {_OF_OTHER_ENGINES} {_OF_FORMER_RELEASES}".split())
"""All that Paimon knows or knew under the four prefixes; docs/options.md tells what each of them means here."""

_OF_READERS = """
    aggregation.remove-record-on-delete blob-as-descriptor blob-descriptor-field blob-view-field
    blob-view.resolve.enabled blob.stored-descriptor-fields bucket-function.type bucket-key
    chain-table.chain-partition-keys chain-table.enabled chain-table.streaming.merge-snapshot changelog-producer
    consumer-id consumer.changelog-only consumer.expiration-time consumer.ignore-progress
    continuous.discovery-interval data-evolution.enabled data-file.path-directory data-file.thin-mode
    deduplicate.ignore-delete deletion-vectors.enabled fields.aggregate-function fields.count-limit
    fields.default-aggregate-function fields.distinct fields.ignore-retract fields.list-agg-delimiter fields.nested-key
    fields.nested-key-null-strategy fields.nested-sequence-field fields.sequence-group fields.ts-field
    file-index.read.enabled first-row.ignore-delete force-lookup full-compaction.delta-commits ignore-delete
    index-file-in-data-file-dir log.scan log.scan.remove-normalize log.scan.timestamp-millis merge-engine num-levels
    num-sorted-run.compaction-trigger orc.timestamp-ltz.legacy.type partial-update.ignore-delete
    partial-update.remove-record-on-delete
    partial-update.remove-record-on-sequence-group partition.default-name partition.legacy-name
    pk-clustering-override query-auth.enabled rowkind.field row-tracking.enabled sequence.field
    sequence.field.sort-order sequence.snapshot-ordering source.split.open-file-cost source.split.target-size
    stream-scan-mode table-read.sequence-number.enabled tag.creation-period tag.creation-period-duration
    tag.period-formatter
"""
_OF_WRITERS = """
    blob.target-file-size changelog-file.compression changelog-file.format changelog-file.prefix
    changelog-file.stats-mode changelog-producer.row-deduplicate changelog-producer.row-deduplicate-ignore-fields
    changelog.num-retained.max changelog.num-retained.min changelog.precommit-compact
    changelog.precommit-compact.buffer-size changelog.time-retained clustering.incremental commit.callbacks
    commit.custom-listeners commit.max-retries commit.max-retry-wait commit.min-retry-wait
    commit.strict-mode.last-safe-snapshot commit.timeout commit.user-prefix compaction.delete-ratio-threshold
    compaction.force-rewrite-all-files compaction.force-up-level-0 compaction.incremental-size-threshold
    compaction.max-size-amplification-percent compaction.min.file-num compaction.offpeak-ratio
    compaction.offpeak.end.hour compaction.offpeak.start.hour compaction.optimization-interval compaction.size-ratio
    compaction.small-file-ratio compaction.total-size-threshold data-file.external-paths
    data-file.external-paths.specific-fs data-file.external-paths.strategy data-file.prefix deletion-vectors.bitmap64
    dynamic-bucket.initial-buckets dynamic-bucket.max-buckets dynamic-bucket.target-row-num
    dynamic-partition-overwrite fields.stats-mode file-index.in-manifest-threshold file.compression
    file.compression.per.level file.compression.zstd-level file.format file.format.per.level
    file.suffix.include.compression ignore-update-before manifest.compression manifest.format
    manifest.full-compaction-threshold-size manifest.merge-min-count manifest.target-file-size
    metadata.iceberg.storage metadata.stats-dense-store metadata.stats-keep-first-n-columns metadata.stats-mode
    metadata.stats-mode.per.level metastore.partitioned-table metastore.tag-to-partition
    parquet.write-page-index.enabled partition.end-input-to-done partition.expiration-time
    partition.idle-time-to-done partition.idle-time-to-report-statistic partition.timestamp-format.strict
    partition.timestamp-formatter partition.timestamp-pattern precommit-compact record-level.expire-time
    record-level.time-field row-tracking.partition-group-on-commit snapshot.expire.execution-mode
    snapshot.expire.limit snapshot.num-retained.max snapshot.num-retained.min snapshot.time-retained
    tag.automatic-completion tag.automatic-creation tag.callbacks tag.create-success-file tag.default-time-retained
    tag.num-retained-max target-file-row-num target-file-size video-frame-field visibility-callback.enabled
    write-buffer-size write-only write.sequence-number-init-mode
"""

HEEDED_BY_READERS = KNOWN_STREAM_KEYS | frozenset(_OF_READERS.split())
"""Keys that mean something for reading; those of fields without the name of the field."""
HEEDED_KEYS = HEEDED_BY_READERS | frozenset(_OF_WRITERS.split())
"""All keys that mean something here."""
_READERS_SPELLINGS, _SPELLINGS = Spellings(HEEDED_BY_READERS), Spellings(HEEDED_KEYS)


def refuse_unknown_keys(schema: TableSchema) -> None:
    """Refuse a misspelled option of a table that is read: a setting must not be ignored.

    Raises:
        StreamConfigError: Names the key and the nearest known one.
        UnsupportedTableError: The option is internal to Java's compaction jobs.
    """
    for key in schema.options:
        if key.startswith(_PREFIXES) and key not in KNOWN_STREAM_KEYS:
            raise _unknown(key, get_close_matches(key, KNOWN_STREAM_KEYS, n=1))
    _refuse_misspelled(schema.options, _READERS_SPELLINGS)
    mode = OptionValues(schema.options).text("stream-scan-mode")
    if mode is not None and mode.lower() != "none":
        raise UnsupportedTableError(
            f"Option 'stream-scan-mode' = '{mode}' is internal to Java's compaction jobs; remove it."
        )


def refuse_misspelled_keys(keys: Iterable[str]) -> None:
    """Refuse a misspelled option of a table that is written or compacted.

    Raises:
        StreamConfigError: Names the key and the known one.
    """
    _refuse_misspelled(keys, _SPELLINGS)


def _refuse_misspelled(keys: Iterable[str], spellings: Spellings) -> None:
    for key in keys:
        meant = spellings.meant_by(key)
        if meant is not None:
            raise _unknown(key, [meant])


def _unknown(key: str, near: Collection[str]) -> StreamConfigError:
    hint = "".join(f" Did you mean '{each}'?" for each in near)
    return StreamConfigError(f"Unknown option '{key}'.{hint} Remove it or correct its name.")
