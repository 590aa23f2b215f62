"""Create, replace, rename and delete tags. Java's rules: docs/java-semantics.md#maintenance."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from functools import partial

from pypaimon.streaming.errors import MaintenanceConflictError, StreamConfigError
from pypaimon.streaming.io.conditional_writes import ChangedFileError
from pypaimon.streaming.maintenance.automatic_tags import PeriodTags, automatic_tags
from pypaimon.streaming.maintenance.maintain import TableRun, repeated
from pypaimon.streaming.maintenance.plan import MaintenancePlan, MaintenanceReport
from pypaimon.streaming.maintenance.roots import Picture
from pypaimon.streaming.maintenance.tag_writer import TagWriter, new_tag, warn_of_callbacks
from pypaimon.streaming.maintenance.tags import Tag, tags_of
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import SUCCESS_FILES, TableDirectory
from pypaimon.streaming.options.arguments import a_name, a_table, finite_seconds, millis, typed
from pypaimon.streaming.paimon.handles import WritableTable


def create_tag(
    table: WritableTable,
    name: str,
    *,
    snapshot: int | None = None,
    time: datetime | str | int | None = None,
    watermark: int | None = None,
    retention: float | timedelta | None = None,
    exist_ok: bool = False,
) -> Tag:
    """Create a tag, which keeps a snapshot readable after the snapshot has expired. Blocks.

    Args:
        table: pypaimon's table, as `catalog.get_table(...)` gives it. The tag is on the branch of the table.
        name: The name of the tag.
        snapshot: Id of the snapshot, which may have expired if another tag keeps it. Without it, a time and a
            watermark it is the latest one.
        time: The first snapshot that was committed at this time or later: an aware datetime, ISO 8601, or epoch
            milliseconds.
        watermark: The first snapshot with this watermark (epoch milliseconds) or a greater one.
        retention: Seconds, or a timedelta, after which the tag expires; None: what the option
            `tag.default-time-retained` says, otherwise never.
        exist_ok: Leave a tag of this name as it is, and return it.

    Raises:
        StreamConfigError: There is a tag of this name, or no such snapshot; or an argument cannot be used.
        MaintenanceConflictError: The snapshot expired meanwhile (retriable); no tag was created.
        CorruptTableError: A file that is needed is damaged.
        StoreError: The store failed (retriable).
    """
    given = _table("create_tag", table)
    directory = given.new_directory()
    _check_name("create_tag: name", name)
    kept = None if retention is None else timedelta(seconds=finite_seconds("create_tag: retention", retention))
    known = _tag(directory, name)
    if known is not None:
        return _existing(given, known, exist_ok)
    found = _snapshot("create_tag", directory, snapshot, time, watermark)
    _check_automatic(given, directory, name, found)
    tag = new_tag(given, name, found, kept)
    try:
        TagWriter(given, directory).write(tag)
    except ChangedFileError as error:
        known = _tag(directory, name)
        if known is None:
            raise MaintenanceConflictError(given.name, f"tag {name!r} was created and deleted meanwhile") from error
        return _existing(given, known, exist_ok)
    return tag


def replace_tag(
    table: WritableTable,
    name: str,
    *,
    snapshot: int | None = None,
    time: datetime | str | int | None = None,
    watermark: int | None = None,
    retention: float | timedelta | None = None,
) -> MaintenanceReport:
    """Have a tag keep another snapshot, and delete the files that only it kept. Blocks.

    Args:
        table: pypaimon's table.
        name: A tag that exists.
        snapshot: As for `create_tag`; so are the others.
        time: See there.
        watermark: See there.
        retention: See there. The retention of the replaced tag does not count.

    Raises:
        StreamConfigError: There is no tag of this name, or no such snapshot; or an argument cannot be used.
        MaintenanceConflictError: The snapshot expired meanwhile, or others kept changing what is protected (retriable).
        CorruptTableError: A file that decides what is needed is damaged or missing; nothing was changed.
        StoreError: The store failed (retriable).
    """
    given = _table("replace_tag", table)
    directory = given.new_directory()
    kept = None if retention is None else timedelta(seconds=finite_seconds("replace_tag: retention", retention))
    _check_known(given, directory, [name])
    found = _snapshot("replace_tag", directory, snapshot, time, watermark)
    _check_automatic(given, directory, name, found)
    return _run(given, lambda _: ((name,), (new_tag(given, name, found, kept),)))


def rename_tag(table: WritableTable, name: str, new_name: str) -> None:
    """Rename a tag. Blocks. If it was interrupted, there may be both tags; repeat it then.

    Args:
        table: pypaimon's table.
        name: The tag.
        new_name: Its new name.

    Raises:
        StreamConfigError: There is no tag of this name, or another one of the new name; or that is an
            automatic name, and the snapshot has an automatic tag.
        MaintenanceConflictError: The tag was deleted meanwhile (retriable).
        StoreError: The store failed (retriable).
    """
    # Java calls no callbacks for a rename, so that a warning of those left out would be wrong.
    given = PaimonTable(a_table("rename_tag: table", table))
    directory = given.new_directory()
    _check_name("rename_tag: new_name", new_name)
    _check_known(given, directory, [name])
    if new_name == name:
        return
    known = _tag(directory, name)
    if known is not None:
        _check_automatic(given, directory, new_name, known.snapshot, renamed=name)
    try:
        TagWriter(given, directory).rename(name, new_name)
    except ChangedFileError as error:
        raise StreamConfigError(
            f"{given.name} has a tag {new_name!r} already.", advice="Choose another name."
        ) from error


def delete_tag(table: WritableTable, *names: str, dry_run: bool = False) -> MaintenanceReport:
    """Delete tags, and the files that only they kept. Blocks. If it is killed, the next `maintain` deletes the files.

    Args:
        table: pypaimon's table.
        names: The tags.
        dry_run: Delete nothing. The report says what would be deleted.

    Raises:
        StreamConfigError: There is no tag of one of the names; nothing was deleted.
        CorruptTableError: A file that decides what is needed is damaged or missing; nothing was deleted.
        MaintenanceConflictError: Others kept changing what is protected meanwhile (retriable).
        StoreError: The store failed (retriable).
    """
    given = _table("delete_tag", table)
    if not names:
        raise StreamConfigError("delete_tag: give the name of a tag")
    _check_known(given, given.new_directory(), names)
    return _run(given, lambda _: (names, ()), dry_run=dry_run)


def list_tags(table: WritableTable) -> list[Tag]:
    """All tags of the table's branch, by their names. Blocks.

    Raises:
        CorruptTableError: A tag is damaged.
        StoreError: The store failed (retriable).
    """
    return list(tags_of(PaimonTable(a_table("list_tags: table", table)).new_directory()))


def create_due_tags(table: PaimonTable) -> MaintenanceReport | None:
    """Create the automatic tags that are due, and delete those that are too many; for use after a commit.

    Without a due tag it lists the tags and reads the latest snapshot. `maintain` does the same in its own run.

    Returns:
        What was done; None if no tag can be due.

    Raises:
        StreamConfigError: An option cannot be read, or a snapshot has two automatic tags.
        MaintenanceConflictError: A snapshot expired meanwhile, or others kept changing what is protected (retriable).
        CorruptTableError: A file is damaged.
        StoreError: The store failed (retriable).
    """
    rule = automatic_tags(table)
    if rule is None:
        return None
    directory = table.new_directory()
    latest = directory.snapshots.get_latest_snapshot()
    if latest is None or rule.is_idle(directory.tag_names(), latest):
        return None

    def changes(picture: Picture) -> tuple[Sequence[str], Sequence[Tag]]:
        created = rule.new_tags(table, picture.own.snapshots, picture.tags, int(1000 * clock.time()))
        return rule.outdated(picture.tags, created), created

    return _run(table, changes)


def _run(
    table: PaimonTable, changes: Callable[[Picture], tuple[Sequence[str], Sequence[Tag]]], *, dry_run: bool = False
) -> MaintenanceReport:
    """Delete tags, or create them, as maintenance does, and expire nothing else.

    Args:
        table: The table.
        changes: Names of the tags that are deleted, and the tags that are created.
        dry_run: Change nothing.
    """

    def planned(picture: Picture) -> MaintenancePlan:
        (names, created), snapshots = changes(picture), picture.own.snapshots
        return MaintenancePlan(
            table.name,
            tags=tuple(dict.fromkeys(names)),
            earliest_id=snapshots[0].id if snapshots else None,
            latest_id=snapshots[-1].id if snapshots else None,
            created_tags=tuple(created),
        )

    report = repeated(lambda: TableRun(table, table.new_directory(), planned).report(dry_run))
    report.log()
    return report


def _table(call: str, table: WritableTable) -> PaimonTable:
    given = PaimonTable(a_table(f"{call}: table", table))
    warn_of_callbacks(given)
    return given


def _check_name(what: str, name: str) -> None:
    # A tag in a deeper directory is in no listing, so it would protect nothing.
    if not a_name(what, name).strip() or "/" in name or f"tag-{name}" == SUCCESS_FILES:
        raise StreamConfigError(f"{what}: expected a name that is not blank, without '/', got {name!r}")


def _check_known(table: PaimonTable, directory: TableDirectory, names: Sequence[str]) -> None:
    known = directory.tag_names()
    for name in names:
        if name not in known:
            raise StreamConfigError(f"{table.name} has no tag {name!r}; it has: {', '.join(known) or 'none'}.")


def _check_automatic(
    table: PaimonTable, directory: TableDirectory, name: str, snapshot: Snapshot, renamed: str | None = None
) -> None:
    """Refuse a second automatic tag of a snapshot, which would end the creation of automatic tags, also by Java."""
    rule = automatic_tags(table)
    if not isinstance(rule, PeriodTags) or not rule.is_automatic(name):
        return
    for each in tags_of(directory):
        if each.snapshot.id == snapshot.id and each.name not in (name, renamed) and rule.is_automatic(each.name):
            raise StreamConfigError(
                f"Snapshot {snapshot.id} of {table.name} has the automatic tag {each.name!r}, and {name!r} would be a "
                "second one.",
                advice="Choose a name that is not that of a period.",
            )


def _existing(table: PaimonTable, known: Tag, exist_ok: bool) -> Tag:
    if not exist_ok:
        raise StreamConfigError(
            f"{table.name} has a tag {known.name!r} already.", advice="Replace it, or choose another name."
        )
    return known


def _tag(directory: TableDirectory, name: str) -> Tag | None:
    path = directory.tag_path(name)
    (data,) = directory.store.read_many([path])
    return None if data is None else directory.store.parse_data(path, data, partial(Tag.from_json, name))


def _snapshot(
    call: str,
    directory: TableDirectory,
    snapshot_id: int | None,
    time: datetime | str | int | None,
    watermark: int | None,
) -> Snapshot:
    """The snapshot that the arguments name: one that exists, or that a tag keeps."""
    given = [
        name
        for name, value in (("snapshot", snapshot_id), ("time", time), ("watermark", watermark))
        if value is not None
    ]
    if len(given) > 1:
        raise StreamConfigError(f"{call}: give one of {' and '.join(given)}")
    snapshots, name = directory.snapshots, directory.table.identifier.get_full_name()
    if not given:
        latest = snapshots.get_latest_snapshot()
        if latest is None:
            raise StreamConfigError(f"{name} has no snapshot yet.", advice="Write to it first.")
        return latest
    if snapshot_id is not None:
        number = typed(int, f"{call}: snapshot", snapshot_id)
        tagged = (each for each in _tagged(directory) if each.id == number)
        found = snapshots.refreshed(number) or next(tagged, None)
        what = f"snapshot {number}, and no tag of it"
    elif time is not None:
        moment = millis(f"{call}: time", time)
        before = snapshots.earlier_than_time_millis(moment)
        later = (number for number in snapshots.list_ids() if before is None or number > before.id)
        found = next((each for each in map(snapshots.try_get, later) if each is not None), None)
        found = _earlier(found, [each for each in _tagged(directory) if each.time_millis >= moment])
        what = f"snapshot of {datetime.fromtimestamp(moment / 1000, timezone.utc).isoformat()} or later"
    else:
        least = typed(int, f"{call}: watermark", watermark)
        found = snapshots.later_or_equal_watermark(least)
        found = _earlier(found, [each for each in _tagged(directory) if (each.watermark or least - 1) >= least])
        what = f"snapshot with a watermark of {least} or more"
    if found is None:
        raise StreamConfigError(f"{call}: {name} has no {what}.")
    return found


def _tagged(directory: TableDirectory) -> list[Snapshot]:
    return [each.snapshot for each in tags_of(directory)]


def _earlier(snapshot: Snapshot | None, tagged: Sequence[Snapshot]) -> Snapshot | None:
    """The earliest of them: an earlier snapshot may have expired but for its tag."""
    return min((*tagged, *((snapshot,) if snapshot else ())), key=lambda each: each.id, default=None)
