"""Which keys of table options belong to streams: all that Paimon knows or knew under four prefixes.

Tables keep the options that older releases wrote, so those of every release of Java's core, of its Flink and Spark
connectors and of pypaimon are known. Any other key under a prefix is a misspelled one.
"""

from __future__ import annotations

from difflib import get_close_matches

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.options.option_values import OptionValues

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
"""docs/options.md tells what each of them means here, or why it means nothing."""


def refuse_unknown_keys(schema: TableSchema) -> None:
    """Refuse an option that looks like one of a stream but is none: a misspelled setting must not be ignored.

    Raises:
        StreamConfigError: Names the key and the nearest known one.
        UnsupportedTableError: The option is internal to Java's compaction jobs.
    """
    for key in schema.options:
        if key.startswith(_PREFIXES) and key not in KNOWN_STREAM_KEYS:
            near = get_close_matches(key, KNOWN_STREAM_KEYS, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise StreamConfigError(f"Unknown option '{key}'.{hint} Remove it or correct its name.")
    mode = OptionValues(schema.options).text("stream-scan-mode")
    if mode is not None and mode.lower() != "none":
        raise UnsupportedTableError(
            f"Option 'stream-scan-mode' = '{mode}' is internal to Java's compaction jobs; remove it."
        )
