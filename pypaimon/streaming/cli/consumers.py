"""`paimon-stream consumers`: lists, resets and deletes the progress that is saved under consumer ids."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from pypaimon.streaming.cli.confirmation import confirm, yes_option
from pypaimon.streaming.cli.options import catalog_options, grouped, log_options
from pypaimon.streaming.cli.output import Record, format_option, print_result, show
from pypaimon.streaming.cli.tables import TableSource, on_view, retry_option
from pypaimon.streaming.cli.tables_of_pattern import TableChoice, TablesOfPattern, say_failures
from pypaimon.streaming.concurrency.clock import Clock
from pypaimon.streaming.consumers.consumer_manager import (
    Consumer,
    ConsumerInfo,
    consumers_of,
    lost_state,
    matching_ids,
    snapshots_read,
)
from pypaimon.streaming.errors import CorruptTableError
from pypaimon.streaming.groups.group_directory import group_info, living_member
from pypaimon.streaming.groups.group_files import slots_to_text
from pypaimon.streaming.metadata.history import SnapshotRangeValidator
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.handles import ReadableTable

_COLUMNS = ("consumer", "kind", "state", "next_snapshot", "lag", "last_save", "owner")
_MEMBER_COLUMNS = ("member", "status", "slots", "next_snapshot", "lag", "last_save")
_force = click.option("--force", is_flag=True, help="Also a group with living members, all of which end then.")


@click.group(
    epilog="""\b
Examples:
  paimon-stream consumers list db.orders
  paimon-stream consumers reset db.orders etl --to 42 --yes
  paimon-stream consumers clear db.orders 'test-.*' --except 'test-keep'
"""
)
@log_options
@catalog_options
def consumers() -> None:
    """List, reset and delete the consumers of a table: the names under which readers save their progress."""


@consumers.command(
    "list",
    epilog="""\b
Examples:
  paimon-stream consumers list db.orders
  paimon-stream consumers list db.orders --format json | jq .lag
  paimon-stream consumers list 'db.orders_*'
""",
)
@on_view
@grouped("choice", TableChoice)
@format_option
@retry_option
def list_command(source: TableSource, choice: TableChoice, form: str) -> int:
    """List every consumer file of TABLE, including those of shards, of members and of first plans.

    `state` is "rolled back" if the table was rolled back to before the consumer's progress, or "ahead of the table" if
    its next snapshot is too great: its readers end with an error until it is reset.

    'db.orders_*' stands for the tables that it matches.
    """
    pattern = TablesOfPattern.of(source, choice)
    if pattern is None:
        show(_Consumers(source).records(), _COLUMNS, form, f"{source.name} has no consumers")
        return 0
    found = pattern.ask_each(lambda source, table: _Consumers(source, table).records())
    records: list[Record] = []
    for name, answer in found.items():
        records += [] if isinstance(answer, Exception) else [{"table": name, **record} for record in answer]
    show(records, ("table", *_COLUMNS), form, f"no table of {pattern.text} has consumers")
    return say_failures({name: answer for name, answer in found.items() if isinstance(answer, Exception)})


@consumers.command(
    "show",
    epilog="""\b
Example:
  paimon-stream consumers show db.orders etl
""",
)
@on_view
@click.argument("consumer_id", metavar="ID")
@format_option
@retry_option
def show_command(source: TableSource, consumer_id: str, form: str) -> None:
    """Show the files of one consumer ID; of a group its members, with the slots and the progress of each."""
    consumers = _Consumers(source)
    files = consumers.known(consumer_id)
    members = consumers.members(consumer_id) if any(info.name.group for info in files) else None
    if members is None:
        show(consumers.records(files), _COLUMNS, form, "")
    else:
        show(members, _MEMBER_COLUMNS, form, "")


@consumers.command(
    epilog="""\b
Examples:
  paimon-stream consumers reset db.orders etl --to 42
  paimon-stream consumers reset db.orders etl --to earliest --yes
"""
)
@on_view
@click.argument("consumer_id", metavar="ID")
@click.option(
    "--to", required=True, metavar="N", help="The next snapshot: an id, earliest, or latest (what comes after)."
)
@yes_option
@_force
@format_option
def reset(source: TableSource, consumer_id: str, to: str, yes: bool, force: bool, form: str) -> None:
    """Make every reader of consumer ID continue at snapshot N. A reader that is running stops with an error.

    An ID that does not exist is created, after a question of its own. A group with living members is refused without
    --force; the check may wait for half a session timeout.
    """
    found = _Consumers(source)
    next_snapshot = found.snapshot(to)
    if found.has(consumer_id):
        found.refuse_living([consumer_id], force)
        confirm(yes, f"Reset consumer {consumer_id} of {source.name} to snapshot {next_snapshot}?")
    elif yes or sys.stdin.isatty():
        confirm(yes, f"{found.missing(consumer_id)}. Create it, to start at snapshot {next_snapshot}?")
    else:
        raise click.ClickException(f"{found.missing(consumer_id)}; with --yes it is created")
    found.manager.reset_consumer(consumer_id, Consumer(next_snapshot))
    record: Record = {"id": consumer_id, "next_snapshot": next_snapshot}
    print_result(record, f"Consumer {consumer_id} continues at snapshot {next_snapshot}.", form)


@consumers.command(
    epilog="""\b
Example:
  paimon-stream consumers delete db.orders etl
"""
)
@on_view
@click.argument("consumer_id", metavar="ID")
@yes_option
@_force
@format_option
def delete(source: TableSource, consumer_id: str, yes: bool, force: bool, form: str) -> None:
    """Delete consumer ID. Snapshots that it protected may expire then; a reader that is running stops with an error.

    A group with living members is refused without --force; the check may wait for half a session timeout.
    """
    found = _Consumers(source)
    count = len(found.known(consumer_id))
    found.refuse_living([consumer_id], force)
    confirm(yes, f"Delete consumer {consumer_id} of {source.name} ({count} files)?")
    found.manager.delete_consumer(consumer_id)
    print_result({"id": consumer_id, "deleted_files": count}, f"Consumer {consumer_id} is deleted.", form)


@consumers.command(
    epilog="""\b
Examples:
  paimon-stream consumers clear db.orders 'test-.*'
  paimon-stream consumers clear db.orders 'test-.*' --except 'test-keep' --yes
"""
)
@on_view
@click.argument("pattern", metavar="PATTERN")
@click.option("--except", "excluding", metavar="PATTERN", help="Keep the ids that match this one too.")
@yes_option
@_force
@format_option
def clear(source: TableSource, pattern: str, excluding: str | None, yes: bool, force: bool, form: str) -> None:
    """Delete every consumer whose whole id matches the regular expression PATTERN.

    If a group with living members is among them, nothing is deleted without --force; the check may wait for half a
    session timeout per group.
    """
    found = _Consumers(source)
    ids = matching_ids(found.manager, pattern, excluding)
    found.refuse_living(ids, force)
    count = len(found.manager.list_all_ids())
    confirm(yes, f"Delete {len(ids)} of the {count} consumers of {source.name}, those that match {pattern!r}?")
    found.manager.clear_consumers(pattern, excluding)
    gone = sorted(set(ids).difference(found.manager.list_all_ids()))
    print_result({"deleted": gone}, f"{len(gone)} deleted{': ' if gone else ''}{', '.join(gone)}.", form)


class _Consumers:
    def __init__(self, source: TableSource, table: ReadableTable | None = None) -> None:
        table = source.load() if table is None else table
        self._name = source.name
        self._directory = directory = TableDirectory.of(table)
        self._snapshots = directory.snapshots
        self.manager = consumers_of(directory)

    def infos(self) -> list[ConsumerInfo]:
        return self.manager.infos(self._snapshots.latest_id())

    def records(self, infos: Sequence[ConsumerInfo] | None = None) -> list[Record]:
        infos = self.infos() if infos is None else infos
        # Again, because a running reader may be past the snapshot that was the latest before its file was read.
        latest, found = self._snapshots.latest_id() if infos else None, snapshots_read(self._directory)
        return [_record(info, lost_state(info, latest, found)) for info in infos]

    def known(self, consumer_id: str) -> list[ConsumerInfo]:
        found = [info for info in self.infos() if info.consumer_id == consumer_id]
        if not found:
            raise click.ClickException(self.missing(consumer_id))
        return found

    def has(self, consumer_id: str) -> bool:
        return any(info.consumer_id == consumer_id for info in self.infos())

    def members(self, group_id: str) -> list[Record] | None:
        found = group_info(self._directory, group_id)
        if found is None:
            return None
        return [
            {
                "member": info.member or "(nobody)",
                "status": info.status,
                "slots": slots_to_text(info.slots),
                "next_snapshot": info.next_snapshot,
                "lag": info.lag,
                "last_save": info.last_save,
            }
            for info in found
        ]

    def refuse_living(self, consumer_ids: Iterable[str], force: bool) -> None:
        for each in () if force else consumer_ids:
            try:
                member = living_member(self._directory, each, Clock())
            except CorruptTableError as error:
                raise click.ClickException(
                    f"{error} Whether the group has living members is not known; --force skips the check."
                ) from error
            if member is not None:
                raise click.ClickException(
                    f"{each!r} is a group with living members ({member}), which would end with an error. Stop them "
                    "first, or give --force."
                )

    def missing(self, consumer_id: str) -> str:
        known = ", ".join(sorted({info.consumer_id for info in self.infos()})) or "none"
        return f"{self._name} has no consumer {consumer_id!r}; it has: {known}"

    def snapshot(self, to: str) -> int:
        traits = TableTraits.of(self._directory.reading_schema(self._directory.latest_schema().id))
        earliest = SnapshotRangeValidator(self._directory, traits.decoupled_changelog).earliest_id()
        latest = self._snapshots.latest_id() or 0
        first = 1 if earliest is None else earliest
        if to in ("earliest", "latest"):
            return first if to == "earliest" else latest + 1
        if not to.isdecimal():
            raise click.UsageError(f"--to {to!r}: give a snapshot id, earliest or latest")
        if not first <= int(to) <= latest + 1:
            raise click.UsageError(
                f"--to {to}: {self._name} holds snapshots {first} to {latest}, then comes {latest + 1}"
            )
        return int(to)


def _record(info: ConsumerInfo, lost: str | None) -> Record:
    return {
        "consumer": info.name.progress.text,
        "id": info.consumer_id,
        "kind": "group" if info.name.group else "first plan" if info.name.is_pin else "progress",
        "state": lost or "ok",
        "shard": _shard(info.name.shard),
        "member": info.name.member,
        "next_snapshot": info.next_snapshot,
        "lag": None if lost else info.lag,
        "last_save": info.last_save,
        "owner": info.owner,
    }


def _shard(shard: tuple[int, int] | None) -> Any:
    return None if shard is None else {"index": shard[0], "count": shard[1]}
