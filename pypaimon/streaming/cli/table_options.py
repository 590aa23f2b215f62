"""Which keys `--table-option` takes: those that a reader of Paimon knows. A misspelled one would mean nothing."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import click

from pypaimon.streaming.internals import ConfigOption, CoreOptions
from pypaimon.streaming.model.time_zone import TIME_ZONE
from pypaimon.streaming.options.known_options import KNOWN_STREAM_KEYS

_FAMILIES = ("fields.", "file-index.", "parquet.", "orc.", "avro.", "lance.", "vortex.", "mosaic.", "fs.")
_OF_PYPAIMON = {each.key() for each in vars(CoreOptions).values() if isinstance(each, ConfigOption)}
_BESIDE = """
    aggregation.remove-record-on-delete chain-table.enabled chain-table.chain-partition-keys
    chain-table.streaming.merge-snapshot consumer-id consumer.expiration-time consumer.ignore-progress
    continuous.discovery-interval deduplicate.ignore-delete first-row.ignore-delete force-lookup
    full-compaction.delta-commits log.scan log.scan.remove-normalize log.scan.timestamp-millis
    num-sorted-run.compaction-trigger partial-update.ignore-delete partial-update.remove-record-on-delete
    partial-update.remove-record-on-sequence-group pk-clustering-override rowkind.field sequence.snapshot-ordering
    stream-scan-mode table-read.sequence-number.enabled
"""
_KNOWN = _OF_PYPAIMON | KNOWN_STREAM_KEYS | {TIME_ZONE, *_BESIDE.split()}


def refuse_unknown(keys: Iterable[str]) -> None:
    """Let only known keys pass.

    Raises:
        click.UsageError: Names the key and the nearest known one.
    """
    for key in keys:
        if key not in _KNOWN and not key.startswith(_FAMILIES):
            near = get_close_matches(key, _KNOWN, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"--table-option: there is no option '{key}' that a reader knows.{hint}")
