"""`warn_unsupported_maintenance`: what a table's options have Java do after a commit, and this library does not do."""

from __future__ import annotations

from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options.option_values import OptionValues

_LOG = StreamLog(__name__)

_SNAPSHOTS, _CHANGELOGS = "run expire_snapshots", "run expire_changelogs"
_TAGS, _OLD_TAGS = "run trigger_tag_automatic_creation", "run expire_tags"
_DONE = "run mark_partition_done"
_COMMIT = "have Java commit"
_MAINTENANCE = {
    "snapshot.time-retained": _SNAPSHOTS,
    "snapshot.num-retained.min": _SNAPSHOTS,
    "snapshot.num-retained.max": _SNAPSHOTS,
    "snapshot.expire.limit": _SNAPSHOTS,
    "snapshot.expire.execution-mode": _SNAPSHOTS,
    "changelog.time-retained": _CHANGELOGS,
    "changelog.num-retained.min": _CHANGELOGS,
    "changelog.num-retained.max": _CHANGELOGS,
    "tag.automatic-creation": _TAGS,
    "tag.automatic-completion": _TAGS,
    "tag.callbacks": _TAGS,
    "tag.create-success-file": _TAGS,
    "tag.default-time-retained": _OLD_TAGS,
    "tag.num-retained-max": _OLD_TAGS,
    "partition.expiration-time": "run expire_partitions",
    "consumer.expiration-time": "run paimon-stream consumers delete",
}
"""What a writer of Java does unless the table is `write-only`: the option, and what to do instead."""
_CALLBACKS = {
    "commit.callbacks": _COMMIT,
    "metadata.iceberg.storage": _COMMIT,
    "metastore.partitioned-table": _COMMIT,
    "metastore.tag-to-partition": _COMMIT,
    "commit.custom-listeners": _COMMIT,
    "visibility-callback.enabled": "have Java commit, which waits until the rows are visible",
    "partition.idle-time-to-done": _DONE,
    "partition.end-input-to-done": _DONE,
    "partition.idle-time-to-report-statistic": _COMMIT,
}
"""What each commit of Java, or of its engines, does: the option, and what to do instead."""
_NOTHING = ("", "none", "disabled", "false", "0 s", "0s")

_warned: set[tuple[str, str]] = set()


def left_out(options: OptionValues) -> str:
    """The options of a table that are not carried out here, with what to do instead; empty if there are none."""
    asked = _CALLBACKS if options.boolean("write-only", False) else {**_MAINTENANCE, **_CALLBACKS}
    found = [
        (key, advice) for key, advice in asked.items() if (options.text(key) or "").strip().lower() not in _NOTHING
    ]
    return ", ".join(f"{key} ({advice})" for key, advice in found)


def warn_unsupported_maintenance(table: PaimonTable) -> None:
    """Log, once in a process, the maintenance that a table's options ask for and commits here do not do."""
    options = left_out(table.options)
    key = table.path, options
    if options and key not in _warned:
        _warned.add(key)
        text = "after commits to %(table)s a writer of Java would do more than is done here: %(options)s"
        _LOG.warning("upkeep_left_out", text, table=table.name, options=options)
