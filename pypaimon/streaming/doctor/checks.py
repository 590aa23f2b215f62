"""The checks of a table: one small function each, over what one look has seen. A new one is a function and a row here.

A check yields what it finds, also that all is well; it asks the store for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo
from pypaimon.streaming.doctor.consumer_checks import consumers, expiry
from pypaimon.streaming.doctor.examination import Examination, examine
from pypaimon.streaming.doctor.findings import Diagnosis, Finding, Level, age, count, names, size
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.options.stream_options import overwrite_policy
from pypaimon.streaming.options.table_traits import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.planning.follow_up import CommitKind

Check = Callable[[Examination], Iterator[Finding]]

_MANY_SMALL = 50
_RUNS_BEHIND = 3
_WITHOUT_IMAGES = {
    ChangelogProducer.NONE: "an update comes as another +I, without the row before it",
    ChangelogProducer.INPUT: "-U, +U and -D come as the writer wrote them, and not where it did not",
}


def failures(seen: Examination) -> Iterator[Finding]:
    """What cannot be read, or is refused by every stream."""
    for what, error in seen.failures.items():
        yield Finding(Level.PROBLEM, str(error), facts={"what": what, "error": type(error).__name__})


def kind(seen: Examination) -> Iterator[Finding]:
    """Which kind of table it is."""
    schema, traits = seen.schema, seen.traits
    by = f", partitioned by {', '.join(schema.partition_keys)}" if schema.partition_keys else ""
    if traits.primary_key:
        text = f"A primary-key table ({', '.join(schema.primary_keys)}) with merge engine {traits.merge_engine.value}"
    else:
        text = "An append table"
    facts = {
        "primary_keys": list(schema.primary_keys),
        "partition_keys": list(schema.partition_keys),
        "merge_engine": traits.merge_engine.value if traits.primary_key else None,
        "bucket": traits.bucket,
        "deletion_vectors": traits.deletion_vectors,
        "schema": schema.id,
    }
    text = f"{text}, {_buckets(seen)}{by}."
    if seen.stream is not None and seen.stream.chain is not None:
        text = f"A chain table; what follows is of its branch {seen.stream.chain.delta}. {text}"
    yield Finding(Level.OK, text, facts=facts)


def changelog(seen: Examination) -> Iterator[Finding]:
    """What a stream can know of changes."""
    traits = seen.traits
    if "stream" in seen.failures:
        return
    producer = traits.producer
    facts = {"producer": producer.value, "retracts": traits.can_retract, "images": producer.complete}
    if not traits.primary_key:
        yield Finding(Level.OK, "Every row that is appended comes once, as +I.", facts=facts)
    elif traits.merge_engine is MergeEngineKind.FIRST_ROW:
        yield Finding(Level.OK, f"{producer.value}: the first row of each key comes, as +I.", facts=facts)
    elif producer.complete:
        text = f"{producer.value}: every change comes with the row before it (-U and +U, -D), once it is compacted."
        yield Finding(Level.OK, text, facts=facts)
    else:
        advice = "Apply changes by key; who needs the rows before, sums for instance, sets changelog-producer = lookup."
        yield Finding(Level.NOTE, f"{producer.value}: {_WITHOUT_IMAGES[producer]}.", advice, facts)


def compaction(seen: Examination) -> Iterator[Finding]:
    """Whether the compactions come that write the changelog."""
    if not seen.traits.producer.complete or not seen.traits.primary_key:
        return
    waiting = 0
    for snapshot in seen.recent:
        if snapshot.changelog_manifest_list is not None:
            break
        waiting += snapshot.commit_kind == CommitKind.APPEND
    else:
        if waiting:
            text = f"The last {count(waiting, 'commit')} have no changelog yet, so a stream gets nothing of them."
            advice = "Have a compaction run: the writer's own, or with write-only = true a compaction job of its own."
            yield Finding(Level.WARNING, text, advice, {"commits": waiting})
            return
    if waiting:
        text = f"The last {count(waiting, 'commit')} will come with the next compaction."
        yield Finding(Level.OK, text, facts={"commits": waiting})


def snapshots(seen: Examination) -> Iterator[Finding]:
    """Which snapshots are there."""
    if not seen.ids:
        yield Finding(Level.NOTE, "The table has no snapshot yet: a stream waits for the first commit.")
        return
    facts = {"earliest": seen.ids[0], "latest": seen.latest_id, "followable_from": seen.first_id}
    missing = sorted(set(range(seen.ids[0], seen.latest_id)) - set(seen.ids))
    if missing:
        text = f"Missing between other snapshots: {names(map(str, missing))}."
        advice = "A stream that comes there ends with CorruptTableError: restore the files, or start behind them."
        yield Finding(Level.PROBLEM, text, advice, facts | {"missing": missing})
        return
    yield Finding(Level.OK, f"Snapshots {seen.ids[0]} to {seen.latest_id}{_latest_age(seen)}.", facts=facts)


def start(seen: Examination) -> Iterator[Finding]:
    """What a stream without settings of its own would read."""
    if seen.stream is None or seen.start is None:
        return
    mode, found = seen.stream.start.mode, seen.start
    facts = {"mode": mode.value, "state_of": found.full and found.full.id, "next_snapshot": found.next_id}
    changes = f"the changes from snapshot {found.next_id} on"
    saved = _saved(seen)
    if saved is not None:
        text = f"A stream goes on at snapshot {saved.next_snapshot}, as its consumer {saved.consumer_id} says, which "
        text += "an option of the table names."
        yield Finding(Level.OK, text, facts=facts | {"state_of": None, "next_snapshot": saved.next_snapshot})
    elif found.full is not None:
        text = f"A stream starts with the state of snapshot {found.full.id}{_records(found.full)}, then {changes}."
        yield Finding(Level.OK, text, facts=facts)
    elif _is_raised(seen):
        text = f"{mode.value}: what the start names has expired, so a stream starts with {changes}."
        advice = "Begin with the state: scan.mode = latest-full, or with_start('latest-full')."
        yield Finding(Level.WARNING, text, advice, facts)
    else:
        text = f"{mode.value}: a stream starts with {changes}; rows that were not changed since do not come."
        yield Finding(Level.OK, text, facts=facts)


def files(seen: Examination) -> Iterator[Finding]:
    """What a first plan has to open and to merge."""
    layout = seen.layout
    if layout is None:
        return
    facts = {
        "files": layout.files,
        "bytes": layout.bytes,
        "records": layout.records,
        "small_files": layout.small_files,
        "buckets": layout.buckets,
        "merged_buckets": layout.merged_buckets,
        "most_runs": layout.most_runs,
    }
    runs = seen.options.integer("num-sorted-run.compaction-trigger") or 5
    text = f"A first plan reads {count(layout.files, 'file')} ({size(layout.bytes)})"
    text += f" in {count(layout.buckets, 'bucket')}"
    if layout.merged_buckets:
        text += f", and merges {layout.merged_buckets:,} of them, up to {layout.most_runs} sorted runs each"
    if layout.most_runs > runs + _RUNS_BEHIND:
        advice = "Compaction does not keep up: first plans and batch reads merge all of it. Compact the table."
        yield Finding(Level.WARNING, f"{text}.", advice, facts)
    elif layout.most_small_files > _MANY_SMALL:
        text += f"; {layout.small_files:,} files are small, {layout.most_small_files:,} of them in one bucket"
        advice = "Each is a request of its own. Compact the table, or commit less often."
        yield Finding(Level.WARNING, f"{text}.", advice, facts)
    else:
        yield Finding(Level.OK, f"{text}.", facts=facts)


def later(seen: Examination) -> Iterator[Finding]:
    """Rows that are committed, and that a stream gets only after a compaction."""
    layout = seen.layout
    if layout is not None and layout.later_files:
        text = (
            f"A first plan leaves out {count(layout.later_files, 'file')}: rows that come as changelog once compacted."
        )
        yield Finding(Level.NOTE, text, facts={"files": layout.later_files})
    if layout is not None and layout.postponed_files:
        text = f"Bucket -2 holds {count(layout.postponed_files, 'file')} that a compaction has to distribute"
        if seen.traits.only_real_buckets:
            advice = "Run the compaction of postponed buckets: streams get nothing of them before."
            yield Finding(Level.WARNING, f"{text}.", advice, {"files": layout.postponed_files})
        else:
            text += "; streams get their rows unmerged."
            yield Finding(Level.NOTE, text, facts={"files": layout.postponed_files})


def overwrites(seen: Examination) -> Iterator[Finding]:
    """Commits that replaced rows, which streams pass over unless they are told."""
    found = [snapshot.id for snapshot in seen.recent if snapshot.commit_kind == CommitKind.OVERWRITE]
    if "stream" in seen.failures or not found or overwrite_policy(seen.traits, seen.options, None):
        return
    text = f"{count(len(found), 'overwrite')} among the last {count(len(seen.recent), 'snapshot')} (the last one is "
    text += f"{found[0]}): streams pass over them, so that what they replaced or removed is not taken back."
    advice = "Choose: with_on_overwrite('skip' | 'read' | 'fail'). A copy of the table has to begin anew."
    yield Finding(Level.WARNING, text, advice, {"snapshots": found})


def vanishing(seen: Examination) -> Iterator[Finding]:
    """Rows that go without a change that a stream could see."""
    for key, what in (("partition.expiration-time", "Partitions"), ("record-level.expire-time", "Rows")):
        if (value := seen.options.text(key)) is not None:
            text = f"{what} expire ({key} = {value}), and no stream says so: copies keep them."
            yield Finding(Level.NOTE, text, "Expire them in the copy too.", {key: value})


def names_beside(seen: Examination) -> Iterator[Finding]:
    """Tags and branches."""
    if seen.tags or seen.branches:
        parts = [
            f"{count(len(found), what)} ({names(found)})"
            for what, found in (("tag", seen.tags), ("branch", seen.branches))
            if found
        ]
        yield Finding(
            Level.OK, f"{' and '.join(parts)}.", facts={"tags": list(seen.tags), "branches": list(seen.branches)}
        )


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "damage": failures,
        "kind": kind,
        "changelog": changelog,
        "compaction": compaction,
        "snapshots": snapshots,
        "start": start,
        "files": files,
        "waiting": later,
        "overwrites": overwrites,
        "vanishing": vanishing,
        "expiry": expiry,
        "consumers": consumers,
        "names": names_beside,
    }
)
"""Every check by its name, in the order of what they find."""


def diagnose(table: Any, clock: Clock | None = None) -> Diagnosis:
    """What a stream of a table gives, what it costs, and what threatens it. Reads metadata once, and writes nothing.

    Args:
        table: A table of pypaimon.
        clock: Where the time comes from.

    Raises:
        UnsupportedTableError: It cannot be streamed at all: it is of another format, say.
        StreamConfigError: What its options say of its kind, or of expiry, cannot be read.
        StoreError: The store kept failing (retriable).
    """
    seen = examine(table, clock)
    findings = (replace(finding, check=name) for name, check in CHECKS.items() for finding in check(seen))
    return Diagnosis(seen.table, tuple(findings), seen.requests)


def _saved(seen: Examination) -> ConsumerInfo | None:
    """Progress of the consumer that the table's options name, of its slowest reader; None without."""
    consumer = seen.stream and seen.stream.consumer
    if not consumer or consumer.ignore_progress:
        return None
    saved = [info for info in seen.consumers if info.consumer_id == consumer.consumer_id and not info.name.fence]
    return min(saved, key=lambda info: info.next_snapshot, default=None)


def _is_raised(seen: Examination) -> bool:
    """Whether a start at a snapshot or a time lies before what is there."""
    assert seen.stream is not None
    start, first = seen.stream.start, seen.known.get(seen.first_id)
    if start.snapshot_id is not None:
        return max(start.snapshot_id, 1) < seen.first_id
    return start.millis is not None and first is not None and first.id > 1 and start.millis < first.time_millis


def _buckets(seen: Examination) -> str:
    traits = seen.traits
    if traits.postpone:
        return "postponed buckets (-2)"
    if traits.unaware_bucket:
        return "without buckets"
    return "dynamic buckets (-1)" if traits.bucket < 0 else count(traits.bucket, "bucket")


def _latest_age(seen: Examination) -> str:
    latest = seen.known.get(seen.latest_id)
    return "" if latest is None else f", the latest committed {age(seen.now_millis - latest.time_millis)} ago"


def _records(snapshot: Snapshot) -> str:
    return "" if snapshot.total_record_count is None else f" ({count(snapshot.total_record_count, 'record')})"
