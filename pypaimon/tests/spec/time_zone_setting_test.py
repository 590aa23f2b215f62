"""Whatever depends on a time zone follows one setting: the option `time-zone`, or the zone of the process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import compact, stream_read_builder, stream_write_builder
from pypaimon.streaming.cli.tables import start_of
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.filtering.partition_spec import PartitionSpec
from pypaimon.streaming.metadata.table_directory import TableDirectory
from pypaimon.streaming.model.time_zone import TIME_ZONE, zone_of_table
from pypaimon.streaming.options.between import between_of_options
from pypaimon.streaming.options.start import start_of_options
from support.process_state import in_zone
from support.tables.handles import catalog_with_database, write_with

ZONE = "Asia/Shanghai"
LOCAL = AtomicType("TIMESTAMP(3) WITH LOCAL TIME ZONE")
MOMENT = datetime(2024, 6, 15, 20, tzinfo=timezone.utc)
TEXT = "2024-06-15 20:00:00"


class World:
    """A table whose partitions are of moments.

    Args:
        zone: What its option says; None: nothing.
        given: Whether readers and writers are told the zone by their builders, in the place of the option.
    """

    def __init__(self, path: Path, zone: str | None, *, given: bool = False) -> None:
        self.catalog = catalog_with_database(path)
        fields = [
            DataField(0, "k", AtomicType("INT")),
            DataField(1, "p", LOCAL),
            DataField(2, "t", LOCAL),
            DataField(3, "d", LOCAL, default_value=TEXT),
        ]
        options = {"partition.legacy-name": "false", "bucket": "-1"}
        if zone is not None and not given:
            options[TIME_ZONE] = zone
        self.catalog.create_table("db.t", Schema(fields=fields, partition_keys=["p"], options=options), False)
        self.zone = zone if given else None

    @property
    def table(self) -> Any:
        return self.catalog.get_table("db.t")

    def write(self) -> None:
        builder = stream_write_builder(self.table)
        if self.zone is not None:
            builder.with_time_zone(self.zone)
        moments = pa.array([MOMENT], pa.timestamp("ms", "UTC"))
        write_with(builder, pa.table({"k": pa.array([1], pa.int32()), "p": moments, "t": moments}))

    def row(self) -> dict[str, Any]:
        builder = stream_read_builder(self.table)
        if self.zone is not None:
            builder.with_time_zone(self.zone)
        plan = builder.new_streaming_scan().plan()
        assert plan is not None
        (row,) = builder.new_read().to_arrow(plan.splits()).to_pylist()
        return dict(row)


def casts(world: World) -> Any:
    world.write()
    found = []
    for kind in ("STRING", "TIMESTAMP(3)"):
        world.catalog.alter_table("db.t", [SchemaChange.update_column_type("t", AtomicType(kind))], False)
        found.append(world.row()["t"])
    return found


def partitions(world: World) -> Any:
    world.write()
    assert world.row()["p"] == MOMENT
    return [each.name for each in Path(str(world.table.table_path)).glob("p=*")]


def default_values(world: World) -> Any:
    world.write()
    return world.row()["d"]


def creation_times(world: World) -> Any:
    world.write()
    directory = TableDirectory.of(world.table)
    snapshot = directory.snapshots.get_latest_snapshot()
    assert snapshot is not None and snapshot.delta_manifest_list is not None
    entries = directory.manifests.entries(directory.manifests.manifest_list(snapshot.delta_manifest_list))
    (created,) = entries["creation_time"].to_pylist()
    # A reader in the zone of the writer finds it young, another one does not.
    now = int(time.time() * 1000)
    starts = (now - 3_600_000, now + 3_600_000)
    builders = [stream_read_builder(world.table).with_start(file_creation_time=each) for each in starts]
    if world.zone is not None:
        builders = [each.with_time_zone(world.zone) for each in builders]
    plans = [each.new_streaming_scan().plan() for each in builders]
    return round((created - now) / 3_600_000), [plan is not None and bool(plan.splits()) for plan in plans]


def options(world: World) -> Any:
    given = world.table.options.options.to_map() | ({} if world.zone is None else {TIME_ZONE: world.zone})
    start = start_of_options({**given, "scan.timestamp": TEXT})
    between = between_of_options({**given, "incremental-between-timestamp": f"{TEXT},2030-01-01"})
    assert between is not None
    return start.millis, between.start, between.end


def chosen_partitions(world: World) -> Any:
    table = world.table.copy({} if world.zone is None else {TIME_ZONE: world.zone})
    return PartitionSpec.of(table.table_schema, {"p": "2024-06-16 04:00:00"}, "here").predicate.literals


def starts_of_the_program(world: World) -> Any:
    table = world.table.copy({} if world.zone is None else {TIME_ZONE: world.zone})
    return start_of("2024-06-15T20:00", zone_of_table(table))["timestamp"].timestamp()


USES = [casts, partitions, default_values, creation_times, options, chosen_partitions, starts_of_the_program]


@pytest.mark.parametrize("use", USES)
def test_every_use_of_a_zone_follows_one_setting(tmp_path: Path, use: Callable[[World], Any]) -> None:
    with in_zone(ZONE):
        wanted = use(World(tmp_path / "wanted", None))
    with in_zone("America/New_York"):
        assert use(World(tmp_path / "option", ZONE)) == wanted
        assert use(World(tmp_path / "builder", ZONE, given=True)) == wanted
        assert use(World(tmp_path / "other", None)) != wanted


def test_a_builder_that_gets_a_zone_keeps_its_other_settings(tmp_path: Path) -> None:
    world = World(tmp_path, None)
    world.write()
    with in_zone("America/New_York"):
        first = stream_read_builder(world.table).with_projection(["k", "p"]).with_time_zone("UTC")
        for builder in (first, first.copy(), first.copy().with_time_zone("UTC")):
            plan = builder.new_streaming_scan().plan()
            assert plan is not None
            assert builder.new_read().to_arrow(plan.splits()).column_names == ["k", "p"]


@pytest.mark.parametrize("name", ["Asia/Shangai", ""])
def test_a_zone_that_is_not_known_is_refused_before_anything_is_read_or_written(tmp_path: Path, name: str) -> None:
    world = World(tmp_path, None)
    table = world.table.copy({TIME_ZONE: name})
    for ask in (
        lambda: stream_read_builder(world.table).with_time_zone(name),
        lambda: stream_read_builder(table).new_streaming_scan(),
        lambda: stream_write_builder(world.table).with_time_zone(name),
        lambda: stream_write_builder(table).open_sync().__enter__(),
        lambda: compact(table),
    ):
        with pytest.raises(StreamConfigError, match="there is no time zone") as caught:
            ask()
        assert "\n" not in str(caught.value)
    assert not list(Path(str(world.table.table_path)).glob("p=*"))


def test_the_zone_of_orc_files_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """By any writer, of a table whose ORC files depend on it."""
    world = World(tmp_path, None)
    table = world.table.copy({"file.format": "orc"})
    for given in (
        {},
        {"file.format": "parquet"},
        {"orc.timestamp-ltz.legacy.type": "false"},
        {TIME_ZONE: ZONE},
        {TIME_ZONE: ZONE},
    ):
        with stream_write_builder(table.copy(given)).open_sync():
            pass
        compact(table.copy(given))
    lines = [each.getMessage() for each in caplog.records if "time zone" in each.getMessage()]
    assert [re.findall(r"p, t, d .* only in a JVM of time zone ([\w/]+)", each) for each in lines] == [["UTC"], [ZONE]]
