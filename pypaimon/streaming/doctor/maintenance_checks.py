"""Checks of maintenance: what is due, what holds it back, and what earlier runs have left."""

from __future__ import annotations

from collections.abc import Iterator

from pypaimon.streaming.doctor.examination import Examination
from pypaimon.streaming.doctor.findings import Finding, Level, count, names, size
from pypaimon.streaming.filtering.partition_texts import partition_text

_MOST_HOLDERS = 5


def due(seen: Examination) -> Iterator[Finding]:
    """What a run of maintenance would expire now."""
    plan = seen.plan
    if plan is None:
        return
    facts = {
        "snapshots": len(plan.snapshot_ids),
        "changelogs": len(plan.changelog_ids),
        "tags": list(plan.tags),
        "automatic_tags_due": bool(plan.created_tags),
        "partitions": [dict(each) for each in plan.partitions],
        "consumers": list(plan.consumers),
        "earliest_after": plan.earliest_id,
    }
    parts = [
        f"{count(len(ids), what)} ({ids[0]} to {ids[-1]})"
        for what, ids in (("snapshot", plan.snapshot_ids), ("long-lived changelog", plan.changelog_ids))
        if ids
    ]
    parts += [
        f"{count(len(found), what)} ({names(found)})"
        for what, found in (("tag", plan.tags), ("consumer", plan.consumers))
        if found
    ]
    if plan.partitions:
        texts = names(partition_text(each, plan.null_text) for each in plan.partitions)
        parts.append(f"{count(len(plan.partitions), 'partition')} ({texts})")
    if plan.created_tags and not parts:
        advice = "Run paimon-stream maintain, or let writers do it: --maintain."
        yield Finding(Level.NOTE, "A run of maintenance would create automatic tags.", advice, facts)
        return
    if not parts:
        yield Finding(Level.OK, "Nothing is due for maintenance.", facts=facts)
        return
    advice = "Run paimon-stream maintain (--dry-run says what it deletes), or let writers do it: --maintain."
    tags = " and create automatic tags" if plan.created_tags else ""
    yield Finding(Level.NOTE, f"A run of maintenance would expire {', '.join(parts)}{tags}.", advice, facts)


def deletable(seen: Examination) -> Iterator[Finding]:
    """The files that a run of maintenance would delete now, orphans among them."""
    plan = seen.full_plan
    if plan is None:
        return
    orphans = [each for each in plan.files if each.kind == "orphan"]
    orphan_bytes = sum(each.bytes or 0 for each in orphans)
    facts = {"files": len(plan.files), "bytes": plan.bytes, "orphans": len(orphans), "orphan_bytes": orphan_bytes}
    if not plan.files:
        yield Finding(Level.OK, "Every file is needed, or younger than a day.", facts=facts)
        return
    text = f"A run of maintenance with --orphans 1d would delete {count(len(plan.files), 'file')} ({size(plan.bytes)})"
    text += f", {len(orphans)} of them orphans ({size(orphan_bytes)})." if orphans else ", without an orphan."
    yield Finding(Level.NOTE, text, "Run paimon-stream maintain --orphans 1d.", facts)


def held_back(seen: Examination) -> Iterator[Finding]:
    """The consumers for which snapshots stay that would expire otherwise, the one that keeps most of them first."""
    if seen.plan is None or seen.unheld_plan is None:
        return
    held = sorted({*seen.unheld_plan.snapshot_ids} - {*seen.plan.snapshot_ids})
    holders = [
        (each, [number for number in held if number >= each.first_kept])
        for each in seen.plan.protections
        if held and not each.changelog_only and each.first_kept <= held[-1]
    ]
    holders.sort(key=lambda found: found[0].first_kept)
    for each, kept in holders[:_MOST_HOLDERS]:
        text = f"{each.kind.capitalize()} {each.name} keeps {count(len(kept), 'snapshot')} ({kept[0]} to {kept[-1]}) "
        text += f"that would expire otherwise; it reads snapshot {each.next_snapshot} next."
        facts = {"kind": each.kind, "name": each.name, "next_snapshot": each.next_snapshot, "snapshots": len(kept)}
        yield Finding(Level.NOTE, text, "If nobody uses it: paimon-stream consumers delete.", facts)
    if len(holders) > _MOST_HOLDERS:
        more = len(holders) - _MOST_HOLDERS
        text = f"{count(more, 'more consumer')} {'keeps' if more == 1 else 'keep'} some of the same snapshots."
        yield Finding(Level.NOTE, text, facts={"consumers": more})


def kept_by_tags(seen: Examination) -> Iterator[Finding]:
    """The tags that keep files which no snapshot needs."""
    expired = [each.name for each in seen.tags if seen.ids and each.snapshot.id < seen.ids[0]]
    if expired:
        text = f"{count(len(expired), 'tag')} ({names(expired)}) {'keeps' if len(expired) == 1 else 'keep'} the files "
        yield Finding(Level.OK, f"{text}of snapshots that have expired.", facts={"tags": expired})


def unfinished(seen: Examination) -> Iterator[Finding]:
    """What runs that were stopped have left."""
    if seen.unfinished_plans:
        number = len(seen.unfinished_plans)
        text = f"{count(number, 'run')} of maintenance {'has' if number == 1 else 'have'} not ended, or "
        text += f"{'is' if number == 1 else 'are'} running now: {names(seen.unfinished_plans)}."
        advice = "If it was stopped, the first run after 15 minutes ends it: paimon-stream maintain."
        yield Finding(Level.WARNING, text, advice, {"plans": list(seen.unfinished_plans)})


def earliest_hint(seen: Examination) -> Iterator[Finding]:
    """Whether the hint to the earliest snapshot is right."""
    hint = seen.earliest_hint
    if hint is None or not seen.ids or hint == seen.ids[0]:
        return
    facts = {"hint": hint, "earliest": seen.ids[0]}
    before = sum(number < hint for number in seen.ids)
    if before:
        text = f"The hint EARLIEST names snapshot {hint}, and {count(before, 'snapshot')} before it still "
        text += f"{'exists' if before == 1 else 'exist'}, which expiry by Java does not see."
        yield Finding(Level.WARNING, text, "Run paimon-stream maintain, which does.", facts)
    else:
        text = f"The hint EARLIEST names snapshot {hint}, but the earliest one is {seen.ids[0]}, which readers find by "
        text += "a listing."
        yield Finding(Level.NOTE, text, "The next run of maintenance that expires a snapshot corrects it.", facts)
