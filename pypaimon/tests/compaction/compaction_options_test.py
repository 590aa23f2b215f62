"""Each option that changes what Java compacts is respected, or named in the log."""

from __future__ import annotations

import ast
import logging
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory, Schema

import pypaimon.streaming.compaction
from pypaimon.streaming import compact, stream_write_builder, table_files
from pypaimon.streaming.compaction import rescale
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import OptionKey, Use
from pypaimon.streaming.paimon.internals import CoreOptions
from support.tables.rescaled_tables import created, write

JAVA = {
    "compaction.delete-ratio-threshold", "compaction.file-num-limit", "compaction.force-rewrite-all-files",
    "compaction.force-up-level-0", "compaction.incremental-size-threshold",
    "compaction.max-size-amplification-percent", "compaction.min.file-num", "compaction.offpeak-ratio",
    "compaction.offpeak.end.hour", "compaction.offpeak.start.hour", "compaction.optimization-interval",
    "compaction.size-ratio", "compaction.skip-expired-partitions", "compaction.small-file-ratio",
    "compaction.total-size-threshold",
}  # fmt: skip
"""All that begin so in CoreOptions of Java's master of August 2026."""
NAMED = {
    "compaction.file-num-limit": "5",
    "lookup-compact": "gentle",
    "lookup-compact.max-interval": "3",
    "full-compaction.delta-commits": "2",
}


def test_every_option_of_compaction_is_respected_or_named() -> None:
    of_pypaimon = {str(each.key()) for each in vars(CoreOptions).values() if hasattr(each, "key")}
    names = JAVA | {name for name in of_pypaimon if name.startswith("compaction.")}
    constants = {key.name: name for name, key in vars(option_keys).items() if isinstance(key, OptionKey)}
    used = set[str]()
    for package in ("compaction", "writing/files"):
        for path in (Path(pypaimon.streaming.compaction.__path__[0]).parent / package).glob("*.py"):
            used |= {
                node.attr
                for definition in ast.parse(path.read_text("utf-8")).body
                if not (isinstance(definition, ast.FunctionDef) and definition.name == "_ignored")
                for node in ast.walk(definition)
                if isinstance(node, ast.Attribute)
            }
    for name in sorted(names):
        key = vars(option_keys)[constants[name]]
        assert key.use & Use.COMPACT, name
        assert (constants[name] in used) != (name in NAMED), name


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.slow
def test_an_option_that_is_ignored_is_named_once(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    table = created(tmp_path, {name: NAMED[name]})
    write(table, 1, range(3))
    with caplog.at_level(logging.WARNING):
        compact(table)
        compact(table)
    messages = [each.getMessage() for each in caplog.records if "ignore options" in each.getMessage()]
    assert len(messages) == 1 and f"'{name}' = '{NAMED[name]}'" in messages[0]


def dated(directory: Path, options: dict[str, str]) -> Any:
    catalog = CatalogFactory.create({"warehouse": str(directory)})
    catalog.create_database("d", False)
    columns = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False)])
    keyed = "bucket" in options
    given = {"compaction.skip-expired-partitions": "true", "partition.timestamp-formatter": "yyyy-MM-dd", **options}
    schema = Schema.from_pyarrow_schema(
        columns, partition_keys=["day"], primary_keys=["id", "day"] if keyed else None, options=given
    )
    catalog.create_table("d.t", schema, False)
    table = catalog.get_table("d.t")
    for key in range(3):
        rows = [{"id": key, "day": day} for day in ("2026-11-01", "2026-11-09", "2026-11-10", "soon")]
        with stream_write_builder(table).with_commit_user("w").open_sync() as writer:
            writer.write(pa.Table.from_pylist(rows, columns))
            writer.commit()
    return table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"bucket": "1", "partition.expiration-time": "10 d"}, {"2026-11-01", "2026-11-09"}),
        ({"bucket": "1", "partition.expiration-time": "10 d", "compaction.skip-expired-partitions": "false"}, set()),
        ({"bucket": "1", "partition.expiration-time": "1 d", "partition.expiration-strategy": "update-time"}, set()),
        ({"bucket": "1"}, set()),
        ({"partition.expiration-time": "10 d"}, set()),
    ],
)
def test_expired_partitions_are_left_out(tmp_path: Path, options: dict[str, str], left: set[str]) -> None:
    table = dated(tmp_path, options)
    given = PaimonTable(table)
    now = datetime(2026, 11, 20, tzinfo=given.zone.now().tzinfo)
    report = Compaction(given, full=True, now=lambda: now).run(dry_run=True)
    everything = {"2026-11-01", "2026-11-09", "2026-11-10", "soon"}
    assert {each.partition["day"] for each in report.compacted} == everything - left


@pytest.mark.slow
def test_rescaling_compacts_expired_partitions_too(tmp_path: Path) -> None:
    table = dated(tmp_path, {"bucket": "1", "changelog-producer": "lookup", "partition.expiration-time": "1 d"})
    report = rescale(table, 2)
    assert not report.conflicts and len({each.partition["day"] for each in report.compacted}) == 4
    assert {each.bucket for each in table_files(table).buckets} == {0, 1}


@pytest.mark.slow
def test_no_partition_of_a_chain_table_counts_as_expired(tmp_path: Path) -> None:
    # Partitions of such tables are not dropped here.
    table = dated(tmp_path, {"bucket": "1", "partition.expiration-time": "1 d"})
    chained = table.copy_without_time_travel({"chain-table.enabled": "true"})
    assert len(compact(chained, full=True).compacted) == 4
    assert len(table_files(chained).buckets) == 4


@pytest.mark.slow
def test_expired_partitions_are_not_due(tmp_path: Path) -> None:
    table = dated(tmp_path, {"bucket": "1", "partition.expiration-time": "1 d"})
    due = {each.partition["day"]: each.due is not None for each in table_files(table, full=True).buckets}
    assert due == {"2026-11-01": False, "2026-11-09": False, "2026-11-10": False, "soon": True}
