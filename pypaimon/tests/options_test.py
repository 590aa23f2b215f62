"""Settings of a stream out of a table's options: what they mean, and which are refused (B2, B21, B37, B38)."""

from __future__ import annotations

from typing import Any

import pytest
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.schema.table_schema import TableSchema

from pypaimon.streaming import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.position import Unit
from pypaimon.streaming.settings.option_values import OptionValues
from pypaimon.streaming.settings.options import (
    ConsumerOptions,
    Limits,
    OnOverwrite,
    overwrite_policy,
    refuse_unmergeable,
    table_settings,
)
from pypaimon.streaming.settings.start_options import Start, StartMode
from pypaimon.streaming.settings.table_traits import TableTraits

READ_PRIMARY, READ_APPEND = "streaming-read-overwrite", "streaming-read-append-overwrite"


def schema(options: dict[str, str], primary_key: bool = False) -> TableSchema:
    return TableSchema(
        id=0,
        fields=[DataField(0, "k", AtomicType("INT", False))],
        highest_field_id=0,
        partition_keys=[],
        primary_keys=["k"] if primary_key else [],
        options=options,
        comment=None,
    )


def settings(**options: str) -> dict[str, Any]:
    return table_settings(schema({key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}))


def test_without_options() -> None:
    found = settings()
    assert found["start"] == Start(StartMode.LATEST_FULL)
    assert found["delay_ms"] == 0
    assert found["split_target_bytes"] == 128 << 20
    assert not {"consumer", "bucket_filter", "max_unconfirmed", "poll_interval_ms"} & found.keys()


def test_what_they_mean() -> None:
    found = settings(
        scan__bounded__watermark="17",
        streaming__read__snapshot__delay="2 min",
        continuous__discovery_interval="5s",
        scan__max_snapshot__count="3",
        scan__plan_sort_partition="TRUE",
        scan__bucket="4",
        source__split__target_size="1 mb",
        consumer_id="me",
        consumer__ignore_progress="true",
    )
    assert found["end_watermark"] == 17
    assert found["delay_ms"] == 120_000
    assert found["poll_interval_ms"] == 5_000
    assert found["max_unconfirmed"] == 3
    assert found["sort_partitions"] is True
    assert [bucket for bucket in range(8) if found["bucket_filter"](bucket)] == [4]
    assert found["split_target_bytes"] == 1 << 20
    assert found["consumer"] == ConsumerOptions("me", ignore_progress=True)


@pytest.mark.parametrize("count", ["-1", "0"])
def test_no_bound_of_snapshots(count: str) -> None:
    assert "max_unconfirmed" not in settings(scan__max_snapshot__count=count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scan__snapshotid": "3"}, "Unknown option 'scan.snapshotid'. Did you mean 'scan.snapshot-id'"),
        ({"streaming_read_overwrit": "true"}, "Unknown option"),
        ({"incremental_betwen": "1,2"}, "Unknown option"),
        ({"scan__bounded__watermark": "soon"}, "scan.bounded.watermark"),
        ({"streaming__read__snapshot__delay": "long"}, "streaming.read.snapshot.delay"),
        ({"scan__plan_sort_partition": "maybe"}, "scan.plan-sort-partition"),
        ({"scan__mode": "from-snapshot"}, "must set only one key"),
        ({"scan__mode": "latest", "scan__snapshot_id": "1"}, "scan.snapshot-id must be null"),
        ({"scan__tag_name": "t"}, "Cannot scan from tag in streaming mode"),
        ({"scan__watermark": "1"}, "Cannot scan from watermark in streaming mode"),
        ({"scan__mode": "latest-delta"}, "only supported for batch sources"),
        ({"incremental_between": "1,2"}, "Cannot read incremental in streaming mode"),
    ],
)
def test_refused_before_the_first_read(options: dict[str, str], message: str) -> None:
    with pytest.raises(StreamConfigError) as caught:
        settings(**options)
    assert message in str(caught.value)


def test_internal_modes_of_java_are_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="stream-scan-mode"):
        settings(stream_scan_mode="file-monitor")
    assert settings(stream_scan_mode="none")


class TestOverwrites:
    """The option of the other kind of table counts for nothing, or is refused as Java does."""

    @staticmethod
    def reads(options: dict[str, str], chosen: OnOverwrite | None = None, primary_key: bool = False) -> bool:
        traits = TableTraits.of(schema(options, primary_key))
        return overwrite_policy(traits, OptionValues(options), chosen)

    def test_the_options(self) -> None:
        assert not self.reads({})
        assert self.reads({READ_APPEND: "true"})
        assert self.reads({READ_PRIMARY: "true"}, primary_key=True)
        assert not self.reads({READ_APPEND: "true"}, primary_key=True)

    def test_a_choice_of_the_builder_beats_them(self) -> None:
        assert not self.reads({READ_APPEND: "true"}, OnOverwrite.SKIP)
        assert not self.reads({READ_PRIMARY: "true"}, OnOverwrite.FAIL, primary_key=True)
        assert self.reads({READ_APPEND: "false"}, OnOverwrite.READ)
        assert self.reads({READ_APPEND: "true"}, OnOverwrite.READ, primary_key=True)

    @pytest.mark.parametrize("chosen", [None, *OnOverwrite])
    def test_the_primary_key_option_on_an_append_table(self, chosen: OnOverwrite | None) -> None:
        with pytest.raises(StreamConfigError, match="streaming-read-append-overwrite"):
            self.reads({READ_PRIMARY: "true"}, chosen)

    @pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
    def test_with_complete_changelogs(self, producer: str) -> None:
        options = {"changelog-producer": producer}
        assert not self.reads(options, OnOverwrite.FAIL, primary_key=True)
        assert not self.reads(options | {READ_APPEND: "true"}, primary_key=True)
        for given, chosen in (({READ_PRIMARY: "true"}, None), ({}, OnOverwrite.READ)):
            with pytest.raises(StreamConfigError, match="duplicated changes"):
                self.reads(options | given, chosen, primary_key=True)


@pytest.mark.parametrize("engine", ["partial-update", "aggregation", "first-row"])
def test_partial_records_are_refused_unless_asked_for(engine: str) -> None:
    traits = TableTraits.of(schema({"merge-engine": engine}, primary_key=True))
    with pytest.raises(UnsupportedTableError, match=f"{engine} streaming reading is not supported"):
        refuse_unmergeable(traits, raw=False)
    refuse_unmergeable(traits, raw=True)
    refuse_unmergeable(
        TableTraits.of(schema({"merge-engine": engine, "changelog-producer": "lookup"}, primary_key=True)), raw=False
    )
    refuse_unmergeable(TableTraits.of(schema({"merge-engine": engine})), raw=False)


@pytest.mark.parametrize(
    ("changelog", "wanted"),
    [
        ({}, False),
        ({"changelog.num-retained.min": "10"}, False),
        ({"changelog.num-retained.min": "11"}, True),
        ({"changelog.time-retained": "1 h"}, False),
        ({"changelog.time-retained": "2 h"}, True),
        ({"changelog.time-retained": "2 h", "snapshot.time-retained": "1 d"}, False),
        ({"changelog.num-retained.max": "5", "snapshot.num-retained.max": "4"}, True),
    ],
)
def test_when_changelogs_outlive_snapshots(changelog: dict[str, str], wanted: bool) -> None:
    assert TableTraits.of(schema(changelog)).decoupled_changelog is wanted


def test_any_limit_is_a_limit() -> None:
    assert not Limits()
    assert all((Limits(max_rows=1), Limits(max_bytes=1), Limits(max_splits=1), Limits(until=Unit((), 0, "f", 0))))
