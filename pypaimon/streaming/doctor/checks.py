"""`diagnose` and the checks of a table: one small function each, over an `Examination`.

A check yields its findings, also if all is well, and does no IO. A new check is a function and a row in `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo
from pypaimon.streaming.doctor.consumer_checks import consumers, expiry
from pypaimon.streaming.doctor.examination import Examination, examine
from pypaimon.streaming.doctor.findings import Diagnosis, Finding, Level, age, count, names, size
from pypaimon.streaming.doctor.maintenance_checks import (
    deletable,
    due,
    earliest_hint,
    held_back,
    kept_by_tags,
    unfinished,
)
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.start import Start
from pypaimon.streaming.options.stream_options import overwrite_policy
from pypaimon.streaming.options.table_kinds import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.planning.follow_up import CommitKind
from pypaimon.streaming.planning.planner_state import ReadingFull

Check = Callable[[Examination], Iterator[Finding]]

_MANY_SMALL = 50
_RUNS_OVER_TRIGGER = 3
_WITHOUT_IMAGES = {
    ChangelogProducer.NONE: "an update comes as another +I, without the row before it",
    ChangelogProducer.INPUT: "-U, +U and -D come as the writer wrote them, and not where it did not",
}


def failures(seen: Examination) -> Iterator[Finding]:
    for what, error in seen.failures.items():
        yield Finding(Level.PROBLEM, str(error), facts={"what": what, "error": type(error).__name__})


def kind(seen: Examination) -> Iterator[Finding]:
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
        advice = (
            "Apply changes by key. If you need the old rows, for example for sums, set changelog-producer = lookup."
        )
        yield Finding(Level.NOTE, f"{producer.value}: {_WITHOUT_IMAGES[producer]}.", advice, facts)


def compaction(seen: Examination) -> Iterator[Finding]:
    """Whether compactions write the changelog."""
    if not seen.traits.producer.complete or not seen.traits.primary_key:
        return
    waiting = 0
    for snapshot in seen.recent:
        if snapshot.changelog_manifest_list is not None:
            break
        waiting += snapshot.commit_kind == CommitKind.APPEND
    else:
        if waiting:
            text = f"The last {count(waiting, 'commit')} have no changelog yet, so a stream does not get their rows."
            advice = "Run a compaction: the writer's own, or a separate compaction job if write-only = true."
            yield Finding(Level.WARNING, text, advice, {"commits": waiting})
            return
    if waiting:
        text = f"The last {count(waiting, 'commit')} will come with the next compaction."
        yield Finding(Level.OK, text, facts={"commits": waiting})


def snapshots(seen: Examination) -> Iterator[Finding]:
    """The range of snapshots."""
    if not seen.ids:
        yield Finding(Level.NOTE, "The table has no snapshot yet: a stream waits for the first commit.")
        return
    facts = {"earliest": seen.ids[0], "latest": seen.latest_id, "followable_from": seen.first_id}
    missing = sorted(set(range(seen.ids[0], seen.latest_id)) - set(seen.ids))
    if missing:
        text = f"Missing between other snapshots: {names(map(str, missing))}."
        advice = "A stream that reaches them ends with CorruptTableError: restore the files, or start after them."
        yield Finding(Level.PROBLEM, text, advice, facts | {"missing": missing})
        return
    yield Finding(Level.OK, f"Snapshots {seen.ids[0]} to {seen.latest_id}{_latest_age(seen)}.", facts=facts)


def start(seen: Examination) -> Iterator[Finding]:
    if seen.stream is None or seen.start is None:
        return
    mode, found = seen.stream.start.mode, seen.start
    full = found.snapshot if isinstance(found, ReadingFull) else None
    facts = {"mode": mode.value, "state_of": full and full.id, "next_snapshot": found.next_id}
    changes = f"the changes from snapshot {found.next_id} on"
    saved = _saved(seen)
    if saved is not None:
        text = f"A stream continues at snapshot {saved.next_snapshot}, the progress of consumer {saved.consumer_id}, "
        text += "which an option of the table names."
        yield Finding(Level.OK, text, facts=facts | {"state_of": None, "next_snapshot": saved.next_snapshot})
    elif full is not None:
        text = f"A stream starts with the state of snapshot {full.id}{_records(full)}, then {changes}."
        yield Finding(Level.OK, text, facts=facts)
    elif _is_raised(seen.stream.start, seen):
        text = f"{mode.value}: the snapshot of the start has expired, so a stream starts with {changes}."
        advice = "Begin with the state: scan.mode = latest-full, or with_start('latest-full')."
        yield Finding(Level.WARNING, text, advice, facts)
    else:
        text = f"{mode.value}: a stream starts with {changes}; rows that have not changed since do not come."
        yield Finding(Level.OK, text, facts=facts)


def files(seen: Examination) -> Iterator[Finding]:
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
    runs = option_keys.NUM_SORTED_RUN_COMPACTION_TRIGGER.of(seen.options)
    text = f"A first plan reads {count(layout.files, 'file')} ({size(layout.bytes)})"
    text += f" in {count(layout.buckets, 'bucket')}"
    if layout.merged_buckets:
        text += f", and merges {layout.merged_buckets:,} of them, up to {layout.most_runs} sorted runs each"
    if layout.most_runs > runs + _RUNS_OVER_TRIGGER:
        advice = "Compaction does not keep up, and first plans and batch reads must merge the runs. Compact the table."
        yield Finding(Level.WARNING, f"{text}.", advice, facts)
    elif layout.most_small_files > _MANY_SMALL:
        text += f"; {layout.small_files:,} files are small, {layout.most_small_files:,} of them in one bucket"
        advice = "Each file takes a request. Compact the table, or commit less often."
        yield Finding(Level.WARNING, f"{text}.", advice, facts)
    else:
        yield Finding(Level.OK, f"{text}.", facts=facts)


def bucket_numbers(seen: Examination) -> Iterator[Finding]:
    """Partitions that writers refuse, because the number of buckets was changed."""
    layout, number = seen.layout, seen.traits.bucket
    if layout is not None and layout.other_counts:
        others = " and ".join(map(str, layout.other_counts))
        text = (
            f"Partitions are divided into {others} buckets, and the option 'bucket' is {number}: writers refuse them."
        )
        advice = f"Divide them again: paimon-stream rescale {seen.table} {number}. Or set 'bucket' back."
        yield Finding(Level.PROBLEM, text, advice, {"bucket": number, "others": list(layout.other_counts)})


def later(seen: Examination) -> Iterator[Finding]:
    """Committed rows that a stream gets only after a compaction."""
    layout = seen.layout
    if layout is not None and layout.later_files:
        text = f"A first plan leaves out {count(layout.later_files, 'file')}: "
        text += "rows that come as changelog after compaction."
        yield Finding(Level.NOTE, text, facts={"files": layout.later_files})
    if layout is not None and layout.postponed_files:
        text = f"Bucket -2 holds {count(layout.postponed_files, 'file')} that a compaction must distribute"
        if seen.traits.only_real_buckets:
            advice = "Run `compact`: until then, streams do not get these rows."
            yield Finding(Level.WARNING, f"{text}.", advice, {"files": layout.postponed_files})
        else:
            text += "; streams get their rows unmerged."
            yield Finding(Level.NOTE, text, facts={"files": layout.postponed_files})


def overwrites(seen: Examination) -> Iterator[Finding]:
    found = [snapshot.id for snapshot in seen.recent if snapshot.overwrites_rows]
    if "stream" in seen.failures or not found or overwrite_policy(seen.traits, seen.options, None):
        return
    text = f"{count(len(found), 'overwrite')} among the last {count(len(seen.recent), 'snapshot')} (the last one is "
    text += f"{found[0]}): streams skip them, so rows that they replaced or removed are not retracted."
    advice = (
        "Choose with_on_overwrite('skip' | 'read' | 'fail'). Targets and live tables follow overwrites by themselves."
    )
    yield Finding(Level.WARNING, text, advice, {"snapshots": found})


def vanishing(seen: Examination) -> Iterator[Finding]:
    for key, what, advice in (
        (
            option_keys.PARTITION_EXPIRATION_TIME,
            "Partitions",
            "with_on_overwrite('read') reports it for some tables. Targets and live tables follow it by themselves.",
        ),
        (
            option_keys.RECORD_LEVEL_EXPIRE_TIME,
            "Rows",
            "Expire them in what you make of the changes. Targets and live tables refuse tables with a primary key.",
        ),
    ):
        if (value := key.text(seen.options)) is not None:
            text = f"{what} expire ({key} = {value}), but streams do not report that."
            yield Finding(Level.NOTE, text, advice, {key.name: value})


def tags_and_branches(seen: Examination) -> Iterator[Finding]:
    tags = [each.name for each in seen.tags]
    if tags or seen.branches:
        parts = [
            f"{count(len(found), what)} ({names(found)})"
            for what, found in (("tag", tags), ("branch", seen.branches))
            if found
        ]
        yield Finding(Level.OK, f"{' and '.join(parts)}.", facts={"tags": tags, "branches": list(seen.branches)})


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "damage": failures,
        "kind": kind,
        "changelog": changelog,
        "compaction": compaction,
        "snapshots": snapshots,
        "start": start,
        "files": files,
        "bucket_numbers": bucket_numbers,
        "waiting": later,
        "overwrites": overwrites,
        "vanishing": vanishing,
        "expiry": expiry,
        "consumers": consumers,
        "maintenance": due,
        "orphans": deletable,
        "held_back": held_back,
        "kept_by_tags": kept_by_tags,
        "unfinished": unfinished,
        "earliest_hint": earliest_hint,
        "names": tags_and_branches,
    }
)
"""All checks by name, in the order of their findings."""


def diagnose(table: ReadableTable, *, orphans: bool = False) -> Diagnosis:
    """Check what a stream of a table gives, what it costs, and what threatens it. Reads metadata once; writes nothing.

    Args:
        table: A table of pypaimon.
        orphans: Also count the files that `maintain` would delete, with orphans older than a day. Costs what its dry
            run costs: it reads what keeps files, and lists all directories.

    Raises:
        UnsupportedTableError: The table cannot be streamed, for example because it has another format.
        StreamConfigError: An option of the table that decides its kind, or expiry, is invalid.
        StoreError: The store kept failing (retriable).
    """
    return diagnosis_of(examine(table, orphans=orphans))


def diagnosis_of(seen: Examination) -> Diagnosis:
    """What the checks find in what was seen of a table."""
    findings = (replace(finding, check=name) for name, check in CHECKS.items() for finding in check(seen))
    return Diagnosis(seen.table, tuple(findings), seen.requests)


def _saved(seen: Examination) -> ConsumerInfo | None:
    consumer = seen.stream and seen.stream.consumer
    if not consumer or consumer.ignore_progress:
        return None
    saved = [info for info in seen.consumers if info.consumer_id == consumer.consumer_id and not info.name.is_pin]
    return min(saved, key=lambda info: info.next_snapshot, default=None)


def _is_raised(start: Start, seen: Examination) -> bool:
    first = seen.known.get(seen.first_id)
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
