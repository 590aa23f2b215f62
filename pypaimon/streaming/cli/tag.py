"""`paimon-stream tag`: creates, replaces, renames, deletes and lists the tags of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any, TypeVar, cast

import click

from pypaimon.streaming.cli.maintain import report_lines
from pypaimon.streaming.cli.options import catalog_options, grouped, log_options, option
from pypaimon.streaming.cli.output import Record, print_result, show, with_blanks
from pypaimon.streaming.cli.tables import TableSource, duration, on_table, retry_option
from pypaimon.streaming.maintenance.plan import MaintenanceReport
from pypaimon.streaming.maintenance.tag_operations import create_tag, delete_tag, list_tags, rename_tag, replace_tag
from pypaimon.streaming.maintenance.tags import Tag

C = TypeVar("C")
_COLUMNS = ("tag", "snapshot", "commit_time", "watermark", "created", "expires")
_name = click.argument("name", metavar="NAME")


def _json_option(command: C) -> C:
    decorate = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
    return cast(C, decorate(cast(Any, command)))


@dataclass(frozen=True)
class TaggedSnapshot:
    """Which snapshot is tagged, and for how long."""

    snapshot: int | None = option("--snapshot", type=int, metavar="ID", help="This snapshot. [default: the latest]")
    time: str | None = option(
        "--time", metavar="TIME", help="The first snapshot of this time (ISO 8601 with a zone) or later."
    )
    watermark: int | None = option(
        "--watermark", type=int, metavar="MILLIS", help="The first snapshot with this watermark or a greater one."
    )
    retention: str | None = option(
        "--retention", metavar="TIME", help="Delete the tag after this time (12h, 30d). [default: the table's option]"
    )

    def arguments(self) -> dict[str, Any]:
        """The arguments of `create_tag` and `replace_tag`."""
        return {
            "snapshot": self.snapshot,
            "time": self.time,
            "watermark": self.watermark,
            "retention": _retention(self.retention),
        }


@click.group(
    epilog="""\b
Examples:
  paimon-stream tag create db.orders before-migration
  paimon-stream tag create db.orders month-end --time 2026-12-01T00:00:00Z --retention 365d
  paimon-stream tag delete db.orders before-migration --dry-run
"""
)
@log_options
@catalog_options
def tag() -> None:
    """Create, replace, rename, delete and list the tags of a table, which keep snapshots readable by name."""


@tag.command(
    epilog="""\b
Examples:
  paimon-stream tag create db.orders before-migration
  paimon-stream tag create db.orders v1 --snapshot 42
"""
)
@on_table
@_name
@grouped("tagged", TaggedSnapshot)
@_json_option
def create(source: TableSource, name: str, tagged: TaggedSnapshot, as_json: bool) -> None:
    """Create the tag NAME of the latest snapshot of TABLE, or of another one."""
    made = create_tag(source.load(), name, **tagged.arguments())
    text = f"{source.name}: tag {name} keeps snapshot {made.snapshot.id}"
    print_result(_record(made), text, "json" if as_json else "text")


@tag.command(
    epilog="""\b
Example:
  paimon-stream tag replace db.orders current --snapshot 43
"""
)
@on_table
@_name
@grouped("tagged", TaggedSnapshot)
@_json_option
def replace(source: TableSource, name: str, tagged: TaggedSnapshot, as_json: bool) -> None:
    """Have the tag NAME keep another snapshot, and delete the files that only it kept."""
    report = replace_tag(source.load(), name, **tagged.arguments())
    _show(source.name, report, as_json)


@tag.command(
    epilog="""\b
Example:
  paimon-stream tag rename db.orders v1 release-1
"""
)
@on_table
@_name
@click.argument("new_name", metavar="NEW_NAME")
@_json_option
def rename(source: TableSource, name: str, new_name: str, as_json: bool) -> None:
    """Rename the tag NAME."""
    rename_tag(source.load(), name, new_name)
    text = f"{source.name}: tag {name} is {new_name} now"
    print_result({"tag": new_name, "former": name}, text, "json" if as_json else "text")


@tag.command(
    epilog="""\b
Examples:
  paimon-stream tag delete db.orders v1 v2
  paimon-stream tag delete db.orders v1 --dry-run
"""
)
@on_table
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Delete nothing; print what would be deleted.")
@_json_option
def delete(source: TableSource, names: Sequence[str], dry_run: bool, as_json: bool) -> None:
    """Delete tags, and the files that only they kept. If it is killed, the next `maintain` finishes it."""
    _show(source.name, delete_tag(source.load(), *names, dry_run=dry_run), as_json)


@tag.command(
    "list",
    epilog="""\b
Example:
  paimon-stream tag list db.orders
""",
)
@on_table
@_json_option
@retry_option
def list_command(source: TableSource, as_json: bool) -> None:
    """List the tags of TABLE. `created` and `expires` are on the clock of the program that created the tag."""
    records = [_record(each) for each in list_tags(source.load())]
    show(
        records if as_json else with_blanks(records),
        _COLUMNS,
        "json" if as_json else "table",
        f"{source.name} has no tags",
    )


def _show(name: str, report: MaintenanceReport, as_json: bool) -> None:
    record: Record = {**report.plan.to_value(), "dry_run": report.dry_run, "resumed_files": report.resumed}
    print_result(record, "\n".join(report_lines(name, report)), "json" if as_json else "text")


def _record(found: Tag) -> Record:
    moment = partial(datetime.fromtimestamp, tz=timezone.utc)
    return {
        "tag": found.name,
        "snapshot": found.snapshot.id,
        "commit_time": moment(found.snapshot.time_millis / 1000),
        "watermark": found.snapshot.watermark,
        "created": None if found.created is None else found.created.isoformat(" ", "seconds"),
        "expires": None if found.expires is None else found.expires.isoformat(" ", "seconds"),
    }


def _retention(text: str | None) -> timedelta | None:
    found = None if text is None else duration(text)
    if text is not None and not found:
        raise click.UsageError(f"--retention {text!r}: give a time above 0 as 12h, 30d")
    return found
