"""Checks of expiry and of consumers: what is kept for readers, and how far they are."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone

from pypaimon.streaming.consumers.consumer_manager import ConsumerInfo, lost_state
from pypaimon.streaming.doctor.examination import Examination
from pypaimon.streaming.doctor.findings import Finding, Level, age, count

_DAY_MILLIS = 86_400_000
_RENEWED = 2
"""A running reader rewrites its file after a third of `consumer.expiration-time`; after half of it, it is late."""


def expiry(seen: Examination) -> Iterator[Finding]:
    retention = seen.retention
    facts = {
        "num_retained_min": retention.least,
        "num_retained_max": retention.most,
        "time_retained_millis": retention.millis,
        "consumer_expiration_millis": retention.consumer_millis,
        "consumers_keep": "changelogs" if retention.changelog_only else "snapshots",
    }
    limit = f", {retention.most:,} at most" if retention.most < 2**31 - 1 else ""
    text = f"Snapshots expire {age(retention.millis)} after their commit; the last {retention.least:,} are kept{limit}"
    overdue = _overdue(seen)
    facts |= {"kept": len(seen.ids), "overdue": len(overdue)}
    if overdue:
        found = f"{text}. But {count(len(seen.ids), 'snapshot')} exist; the latest commit should have expired "
        found += f"{len(overdue):,} of them ({overdue[0]} to {overdue[-1]}), which no consumer keeps."
        advice = "Nothing expires snapshots, so files are never deleted. Writers in Python expire them only with "
        advice += "--maintain (with_maintenance): use that, or run paimon-stream maintain regularly."
        yield Finding(Level.WARNING, found, advice, facts)
    if not seen.consumers:
        if overdue:
            return
        advice = "A reader that may be away for longer needs a consumer id, or a longer snapshot.time-retained."
        yield Finding(Level.NOTE, f"{text}. No consumer keeps more.", advice, facts)
        return
    first = min(seen.consumers, key=lambda info: info.next_snapshot)
    kept = seen.known.get(max(first.next_snapshot, seen.first_id))
    if kept is None or retention.changelog_only or not _lets_go(seen, kept.id):
        if not overdue:
            yield Finding(Level.OK, f"{text}.", facts=facts)
        return
    text += f". Only consumer {first.name.progress.text} keeps snapshot {kept.id} and what follows from expiring"
    if retention.consumer_millis is None:
        advice = "If nobody uses it: paimon-stream consumers delete. Otherwise set consumer.expiration-time."
        yield Finding(Level.NOTE, f"{text}.", advice, facts | {"kept_by": first.name.text, "kept_from": kept.id})
    else:
        yield Finding(Level.OK, f"{text}.", facts=facts | {"kept_by": first.name.text, "kept_from": kept.id})


def consumers(seen: Examination) -> Iterator[Finding]:
    """The progress of each consumer, and what threatens it."""
    for info in seen.consumers:
        unread = seen.latest_id + 1 - (info.next_snapshot or seen.first_id)
        facts = {
            "consumer": info.name.text,
            "next_snapshot": info.next_snapshot,
            "snapshots_behind": unread if unread >= 0 else None,
            "last_save": None if info.last_save is None else info.last_save.isoformat(),
        }
        yield _lost(seen, info, facts) or _threatened(seen, info, facts) or _progress(seen, info, facts)


def _lost(seen: Examination, info: ConsumerInfo, facts: dict[str, object]) -> Finding | None:
    wanted, read = info.next_snapshot, info.position.last_read
    lost = lost_state(info, seen.latest_id, seen.known.get)
    if lost is not None and read > seen.latest_id:
        text = f"{_title(info)} wants snapshot {wanted}, and the latest is {seen.latest_id}: the table was rolled back "
        advice = "Find out what happened, then run: paimon-stream consumers reset ... --to latest (or an id)."
        return Finding(Level.PROBLEM, f"{text}or re-created.", advice, facts)
    if 0 < wanted < seen.first_id and seen.ids:
        text = f"{_title(info)} has lost snapshots: it wants snapshot {wanted}, "
        text += f"but those before {seen.first_id} have expired."
        advice = "Continue with --on-expired (with_on_expired): full reads the state again, earliest leaves a gap."
        return Finding(Level.PROBLEM, text, advice, facts)
    if lost is not None:
        text = f"{_title(info)} has read a different snapshot {read} than the current one: the table was rolled back."
        advice = "Decide what to undo after its readers, then run: paimon-stream consumers reset."
        return Finding(Level.PROBLEM, text, advice, facts)
    return None


def _threatened(seen: Examination, info: ConsumerInfo, facts: dict[str, object]) -> Finding | None:
    expiration = seen.retention.consumer_millis
    wanted = max(info.next_snapshot, seen.first_id)
    if expiration is not None and info.last_save is not None:
        left = _millis(info.last_save) + expiration - seen.now_millis
        if left < expiration - expiration // _RENEWED:
            when = "at the next commit" if left <= 0 else f"in {age(left)}"
            text = f"{_title(info)} has not been saved for {age(expiration - left)}: its file expires {when}"
            text += f", and then snapshot {wanted}, which it wants next, does too." if _lets_go(seen, wanted) else "."
            return Finding(Level.WARNING, text, "Start its reader, or delete the consumer.", facts)
    return None


def _progress(seen: Examination, info: ConsumerInfo, facts: dict[str, object]) -> Finding:
    unread = seen.latest_id + 1 - max(info.next_snapshot, seen.first_id)
    if info.position.is_inside:
        text = f"{_title(info)} is in its first plan, and keeps snapshot {info.next_snapshot}."
        level = Level.OK
    elif not unread:
        return Finding(Level.OK, f"{_title(info)} has read everything.", facts=facts)
    else:
        first = seen.known.get(max(info.next_snapshot, seen.first_id))
        since = "" if first is None else f", the first one committed {age(seen.now_millis - first.time_millis)} ago"
        text, level = f"{_title(info)} is {count(unread, 'snapshot')} behind{since}.", Level.NOTE
    silent = 0 if info.last_save is None else seen.now_millis - _millis(info.last_save)
    if silent > _DAY_MILLIS:
        text = f"{text[:-1]}, and has not been saved for {age(silent)}."
        advice = "Start its reader, or delete it (paimon-stream consumers delete): it keeps files of the table."
        return Finding(Level.WARNING, text, advice, facts)
    return Finding(level, text, facts=facts)


def _overdue(seen: Examination) -> list[int]:
    latest, retention = seen.known.get(seen.latest_id), seen.retention
    if latest is None:
        return []
    too_many = seen.latest_id - max(retention.least, retention.most)
    old = (
        each.id
        for each in seen.known.values()
        if retention.lets_go(each.id, each.time_millis, seen.latest_id, latest.time_millis)
    )
    last = max((too_many, *old))
    # The one before stays too, as in maintenance here.
    kept = () if retention.changelog_only else (info.next_snapshot - 1 for info in seen.consumers)
    first_kept = min(kept, default=seen.latest_id)
    return [number for number in seen.ids if number <= last and number < first_kept]


def _lets_go(seen: Examination, snapshot_id: int) -> bool:
    snapshot = seen.known.get(snapshot_id)
    if snapshot is None:
        return False
    return seen.retention.lets_go(snapshot.id, snapshot.time_millis, seen.latest_id, seen.now_millis)


def _title(info: ConsumerInfo) -> str:
    return f"Consumer {info.name.progress.text}"


def _millis(moment: datetime) -> int:
    return int(moment.astimezone(timezone.utc).timestamp() * 1000)
