"""`paimon-stream snapshots`: which snapshots a stream reads or skips, and why."""

from __future__ import annotations

from datetime import datetime, timezone

import click

from pypaimon.streaming.cli.output import Record, format_option, show
from pypaimon.streaming.cli.tables import TableSource, on_table, retry_option
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.plan import PlanKind
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions
from pypaimon.streaming.options.stream_options import overwrite_policy
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.planning.follow_up import CommitKind, FollowUpScanner, follow_up_scanner
from pypaimon.streaming.spec.chain_tables import followed_table

_COLUMNS = ("snapshot", "time", "commit", "rows_added", "changelog_rows", "total_rows", "stream", "why")
_DEFAULT_LAST = 20


@click.command(
    epilog="""\b
Examples:
  paimon-stream snapshots db.orders
  paimon-stream snapshots db.orders --from 10 --to 30 --format json
"""
)
@on_table
@click.option("--last", type=click.IntRange(min=1), metavar="N", help=f"Only the last N. [default: {_DEFAULT_LAST}]")
@click.option("--from", "first", type=click.IntRange(min=1), metavar="ID", help="From this snapshot.")
@click.option("--to", "until", type=click.IntRange(min=1), metavar="ID", help="Up to this snapshot.")
@format_option
@retry_option
def snapshots(source: TableSource, last: int | None, first: int | None, until: int | None, form: str) -> None:
    """Show the snapshots of TABLE, and whether a stream scans each of them or passes it over, and why.

    For a chain table, these are the snapshots of the delta branch, which a stream follows.
    """
    directory = TableDirectory.of(followed_table(source.load())[0])
    manager = directory.snapshots
    earliest, latest = manager.earliest_id(), manager.latest_id()
    records: list[Record] = []
    if earliest is not None and latest is not None:
        high = latest if until is None else min(latest, until)
        low = earliest if first is None else max(earliest, first)
        if first is None or last is not None:
            low = max(low, high - (last or _DEFAULT_LAST) + 1)
        verdict = Verdict(TableTraits.of(schema := directory.latest_schema()), schema.options)
        found = manager.get_snapshots_batch(range(low, high + 1))
        records = [_record(snapshot, verdict) for snapshot in found.values() if snapshot is not None]
    show(records, _COLUMNS, form, f"{source.name} has no such snapshots")


class Verdict:
    """Explains what a stream of a table does with a snapshot.

    Args:
        traits: Traits of the table.
        options: Options of the table.
    """

    def __init__(self, traits: TableTraits, options: TableOptions) -> None:
        self._traits = traits
        self._scanner: FollowUpScanner = follow_up_scanner(traits)
        self._reads_overwrites = overwrite_policy(traits, options, None)

    def of(self, snapshot: Snapshot) -> tuple[str, str]:
        """What the stream does with a snapshot, and why."""
        kind = snapshot.commit_kind
        if kind == CommitKind.OVERWRITE and self._reads_overwrites:
            return "overwrite", "overwrites are read: an option of the table asks for it"
        if self._scanner.should_scan(snapshot):
            if self._scanner.kind is PlanKind.CHANGELOG:
                return "changelog", "it has changelog files"
            return "delta", "it added files"
        return "passed over", self._why_not(kind)

    def _why_not(self, kind: str) -> str:
        if kind == CommitKind.ANALYZE:
            return "statistics only"
        if self._scanner.kind is PlanKind.CHANGELOG:
            later = "a later compaction writes the changelog" if kind != CommitKind.COMPACT else "it changed no row"
            complete = self._traits.producer.complete
            return f"no changelog files: {later if complete else 'the commit has data files only'}"
        if kind == CommitKind.COMPACT:
            return "a compaction changes no row"
        append, keyed = option_keys.STREAMING_READ_APPEND_OVERWRITE, option_keys.STREAMING_READ_OVERWRITE
        option = keyed if self._traits.primary_key else append
        return f"overwrites are not read; {option} = true reads them"


def _record(snapshot: Snapshot, verdict: Verdict) -> Record:
    stream, why = verdict.of(snapshot)
    return {
        "snapshot": snapshot.id,
        "time": datetime.fromtimestamp(snapshot.time_millis / 1000, tz=timezone.utc),
        "commit": str(snapshot.commit_kind),
        "schema": snapshot.schema_id,
        "rows_added": snapshot.delta_record_count,
        "changelog_rows": snapshot.changelog_record_count,
        "total_rows": snapshot.total_record_count,
        "watermark": snapshot.watermark,
        "stream": stream,
        "why": why,
    }
