"""Which table options this package uses, and which keys are misspellings of them.

Tables hold options of older releases, engines, catalogs and users that this package does not know. So an unknown key is
accepted, with two exceptions: a key with the prefix of a stream option, and a key that is spelled almost like one that
is used here (`Spellings`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from functools import lru_cache

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.paimon.internals import TableSchema

_SHORTEST = 8
"""Shorter keys are not compared, because users have options of their own such as `paths` or `branches`."""
_LONG_WORD = 8
_SEPARATOR = re.compile(r"[.\-_]+")
_NO_LETTER = re.compile(r"[^a-z0-9]")
_MOST_REMEMBERED = 4096
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
"""All keys that Paimon knows or knew under the four prefixes. docs/options.md says what each of them means here."""

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
"""Keys that reads use; those of fields without the name of the field."""
HEEDED_KEYS = HEEDED_BY_READERS | frozenset(_OF_WRITERS.split())
"""All keys that reads, writes or compactions use."""


class Spellings:
    """Finds the known key that a misspelled one means.

    A key is misspelled if its letters are those of a known key with another case or other separators. It is also
    misspelled if it has as many words as a known key and each word is equal or one typo away from it (two in a word of
    eight letters or more): a letter added, missing, replaced, or exchanged with the next one. A word of any known key
    is not a typo.

    Args:
        known: All known keys; those of fields without the name of the field, as in `fields.aggregate-function`.
    """

    def __init__(self, known: Collection[str]) -> None:
        self._known = frozenset(known)
        self._words = frozenset(word for key in known for word in _words(key))
        self._by_letters = {_letters(key): key for key in known if len(_letters(key)) >= _SHORTEST}
        self._by_count: defaultdict[int, list[tuple[list[str], str]]] = defaultdict(list)
        for key in sorted(self._by_letters.values()):
            self._by_count[len(_words(key))].append((_words(key), key))
        self._meant = lru_cache(_MOST_REMEMBERED)(self._found)

    def meant_by(self, key: str) -> str | None:
        """The known key that a key means; None if the key is known, or not like any known key."""
        field, plain = _without_field(key)
        meant = None if plain in self._known else self._meant(plain)
        return meant if meant is None or field is None else f"fields.{field}.{meant.removeprefix('fields.')}"

    def _found(self, key: str) -> str | None:
        same_letters = self._by_letters.get(_letters(key))
        if same_letters is not None:
            return same_letters
        words = _words(key)
        for known, meant in self._by_count[len(words)]:
            if all(map(self._may_mean, words, known)):
                return meant
        return None

    def _may_mean(self, word: str, known: str) -> bool:
        if word == known:
            return True
        most = 2 if len(known) >= _LONG_WORD else 1
        return word not in self._words and abs(len(word) - len(known)) <= most and _distance(word, known) <= most


def _without_field(key: str) -> tuple[str | None, str]:
    """The field of `fields.<field>.<option>`, or None, and the key without it."""
    head, _, rest = key.partition(".")
    field, _, option = rest.rpartition(".")
    return (field, f"fields.{option}") if head == "fields" and field else (None, key)


def _words(key: str) -> list[str]:
    return _SEPARATOR.split(key.lower())


def _letters(key: str) -> str:
    return _NO_LETTER.sub("", key.lower())


def _distance(one: str, other: str) -> int:
    """The number of letters to add, remove, replace, or exchange with the next one."""
    before, row = list[int](), list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, last[j - 2] + 1)
            row.append(best)
    return row[-1]


_READERS_SPELLINGS, _SPELLINGS = Spellings(HEEDED_BY_READERS), Spellings(HEEDED_KEYS)


def refuse_unknown_keys(schema: TableSchema) -> None:
    """Refuse a misspelled option of a table that is read, because a setting must not be ignored.

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
