"""Settings of a stream out of a table's options: what they mean, and which are refused."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from pypaimon.common.memory_size import MemorySize
from pypaimon.common.options.config_option import ConfigOption
from pypaimon.common.options.core_options import ChangelogProducer as UpstreamProducer
from pypaimon.common.options.core_options import CoreOptions, StartupMode
from pypaimon.common.options.core_options import MergeEngine as UpstreamEngine
from pypaimon.common.predicate import Predicate
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.schema.table_schema import TableSchema

from pypaimon.streaming import StreamConfigError, StreamReadBuilder, UnsupportedTableError, stream_read_builder
from pypaimon.streaming.model.position import ReadUnit
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.known_options import KNOWN_STREAM_KEYS
from pypaimon.streaming.options.option_key import BOOLEAN, DURATION, TEXT, OptionKey
from pypaimon.streaming.options.start import NAMED_STARTS, Start, StartMode
from pypaimon.streaming.options.stream_options import (
    CatchUp,
    CommitMode,
    ConsumerOptions,
    Limits,
    OnExpired,
    OnOverwrite,
    OnSchemaChange,
    StreamOptions,
    Unmatched,
    options_of_table,
    overwrite_policy,
    refuse_unmergeable,
)
from pypaimon.streaming.options.table_kinds import BucketFunctionType, ChangelogProducer, MergeEngineKind
from pypaimon.streaming.options.table_traits import TableTraits, merge_engine_of
from pypaimon.streaming.spec.stream_spec import StreamSpec
from support.tables.handles import read_with
from support.tables.orders import catalog, create_orders, events
from support.tables.streamed_table import Table

READ_PRIMARY, READ_APPEND = "streaming-read-overwrite", "streaming-read-append-overwrite"
LATE = {"Predicate": Predicate}
"""What annotations name and modules import only where a filter is used."""


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


def settings(**options: str) -> StreamOptions:
    return options_of_table(schema({key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}))


def test_without_options() -> None:
    found = settings()
    assert found == StreamOptions(Start(StartMode.LATEST_FULL))


def test_what_they_mean() -> None:
    found = settings(
        scan__bounded__watermark="17",
        streaming__read__snapshot__delay="2 min",
        continuous__discovery_interval="5s",
        scan__max_snapshot__count="1",
        scan__plan_sort_partition="TRUE",
        scan__bucket="4",
        source__split__target_size="1 mb",
        consumer_id="me",
        consumer__ignore_progress="true",
    )
    assert found.end_watermark == 17
    assert found.delay_ms == 120_000
    assert found.poll_interval_ms == 5_000
    assert found.max_unconfirmed == 1
    assert found.sort_partitions is True
    takes = found.bucket_filter
    assert takes is not None and [bucket for bucket in range(8) if takes(bucket)] == [4]
    assert found.split_target_bytes == 1 << 20
    assert found.consumer == ConsumerOptions("me", ignore_progress=True)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"scan__mode": "default"}, Start(StartMode.LATEST_FULL)),
        ({"scan__mode": "full"}, Start(StartMode.LATEST_FULL)),
        ({"scan__mode": "latest-full"}, Start(StartMode.LATEST_FULL)),
        ({"scan__mode": "latest"}, Start(StartMode.LATEST)),
        ({"log__scan": "latest"}, Start(StartMode.LATEST)),
        ({"log__scan": "latest", "scan__mode": "compacted-full"}, Start(StartMode.COMPACTED_FULL)),
        ({"scan__timestamp_millis": "17"}, Start(StartMode.FROM_TIMESTAMP, millis=17)),
        ({"log__scan__timestamp_millis": "17"}, Start(StartMode.FROM_TIMESTAMP, millis=17)),
        ({"scan__timestamp": "1970-01-02 00:00:00.017"}, Start(StartMode.FROM_TIMESTAMP, millis=86_400_017)),
        ({"scan__snapshot_id": "3"}, Start(StartMode.FROM_SNAPSHOT, snapshot_id=3)),
        ({"scan__version": "3"}, Start(StartMode.FROM_SNAPSHOT, snapshot_id=3)),
        ({"scan__mode": "from-snapshot-full", "scan__snapshot_id": "3"},
         Start(StartMode.FROM_SNAPSHOT_FULL, snapshot_id=3)),
        ({"scan__file_creation_time_millis": "17"}, Start(StartMode.FROM_FILE_CREATION_TIME, millis=17)),
        ({"scan__creation_time_millis": "17"}, Start(StartMode.FROM_CREATION_TIMESTAMP, millis=17)),
    ],
)  # fmt: skip
def test_where_they_begin(options: dict[str, str], wanted: Start) -> None:
    assert settings(**options).start == wanted


def test_a_time_as_text_is_that_of_the_local_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert settings(scan__timestamp="1970-01-02").start.millis == 15 * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


def test_what_a_builder_is_given_has_the_types_of_the_options() -> None:
    whole, given = (get_type_hints(each, localns=LATE) for each in (StreamOptions, StreamSpec))
    assert {name: kind | None for name, kind in whole.items() if name in given} == {
        name: kind | None for name, kind in given.items() if name in whole
    }


def test_what_a_builder_was_given_beats_the_table_and_leaves_the_rest() -> None:
    table = settings(scan__bucket="4", continuous__discovery_interval="5s")
    assert StreamSpec().over(table) == table
    found = StreamSpec(poll_interval_ms=7, raw=False, prefetch=0).over(table)
    assert found == replace(table, poll_interval_ms=7, prefetch=0)


@pytest.mark.parametrize(
    ("setter", "argument", "words"),
    [
        ("with_start", "mode", NAMED_STARTS),
        ("with_filter", "unmatched", Unmatched),
        ("with_consumer_id", "commit", CommitMode),
        ("with_catch_up", "mode", CatchUp),
        ("with_on_expired", "policy", OnExpired),
        ("with_on_schema_change", "policy", OnSchemaChange),
        ("with_on_overwrite", "policy", OnOverwrite),
    ],
)
def test_the_words_of_a_signature_are_those_that_are_taken(setter: str, argument: str, words: Iterable[str]) -> None:
    kind = get_type_hints(getattr(StreamReadBuilder, setter), localns=LATE)[argument]
    (literal,) = [each for each in (kind, *get_args(kind)) if get_origin(each) is Literal]
    assert list(get_args(literal)) == [getattr(each, "value", each) for each in words]


@pytest.mark.parametrize("count", ["-1", "0"])
def test_no_bound_of_snapshots(count: str) -> None:
    assert settings(scan__max_snapshot__count=count).max_unconfirmed is None


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
        ({"scan__mode": "from-timestamp"}, "must set only one key in [scan.timestamp-millis,scan.timestamp]"),
        ({"scan__timestamp_millis": "1", "scan__timestamp": "1970-01-01"}, "must set only one key"),
        ({"scan__mode": "from-snapshot-full"}, "scan.snapshot-id can not be null when you use from-snapshot-full"),
        ({"scan__mode": "from-file-creation-time"}, "scan.file-creation-time-millis can not be null"),
        ({"scan__mode": "from-creation-timestamp"}, "scan.creation-time-millis can not be null"),
        (
            {"scan__timestamp_millis": "1", "scan__snapshot_id": "1"},
            "[scan.snapshot-id] must be null when you set [scan.timestamp-millis,scan.timestamp]",
        ),
        (
            {"scan__mode": "from-snapshot", "scan__snapshot_id": "1", "scan__timestamp": "1970-01-01"},
            "[scan.timestamp] must be null when you set [scan.snapshot-id,scan.tag-name]",
        ),
        (
            {"scan__mode": "from-snapshot-full", "scan__snapshot_id": "1", "scan__tag_name": "t"},
            "[scan.tag-name] must be null when you set [scan.snapshot-id]",
        ),
        (
            {"scan__mode": "from-file-creation-time", "scan__file_creation_time_millis": "1", "scan__tag_name": "t"},
            "[scan.tag-name] must be null when you set [scan.file-creation-time-millis]",
        ),
        ({"scan__mode": "latest", "scan__snapshot_id": "1"}, "scan.snapshot-id must be null"),
        ({"scan__tag_name": "t"}, "Cannot scan from tag in streaming mode"),
        ({"scan__watermark": "1"}, "Cannot scan from watermark in streaming mode"),
        ({"scan__mode": "latest-delta"}, "only supported for batch sources"),
        ({"incremental_between": "1,2"}, "Cannot read incremental in streaming mode"),
        ({"scan__bucket": "-1"}, "scan.bucket: there is no bucket -1"),
    ],
)
def test_refused_before_the_first_read(options: dict[str, str], message: str) -> None:
    with pytest.raises(StreamConfigError) as caught:
        settings(**options)
    assert message in str(caught.value)


JAVA_2_1 = """
    incremental-between incremental-between-scan-mode incremental-between-tag-to-snapshot incremental-between-timestamp
    incremental-to-auto-tag scan.bounded scan.bounded.watermark scan.bucket scan.creation-time-millis
    scan.dedicated-split-generation scan.fallback-branch scan.fallback-branch.read-fail-fast scan.fallback-delta-branch
    scan.fallback-snapshot-branch scan.file-creation-time-millis scan.ignore-corrupt-files scan.ignore-lost-files
    scan.infer-parallelism scan.infer-parallelism.max scan.manifest.parallelism scan.max-snapshot.count
    scan.max-splits-per-task scan.mode scan.newly-added-table.enabled scan.parallelism scan.partitions
    scan.plan-auto-tag-for-read.time-retained scan.plan-sort-partition scan.primary-branch scan.remove-normalize
    scan.snapshot-id scan.split-enumerator.batch-size scan.split-enumerator.mode scan.tag-name scan.timestamp
    scan.timestamp-millis scan.version scan.watermark scan.watermark.alignment.group
    scan.watermark.alignment.max-drift scan.watermark.alignment.update-interval scan.watermark.emit.strategy
    scan.watermark.idle-timeout streaming-read-append-overwrite streaming-read-overwrite
    streaming-read.shuffle-bucket-with-partition streaming.read.snapshot.delay
"""
FORMER = "scan.push-down streaming-read-mode streaming-read-atomic"
PREFIXES = ("scan.", "incremental-", "streaming-read", "streaming.read.")


def test_every_option_of_paimon_under_these_prefixes_is_known_and_no_other_is() -> None:
    """Those of all classes of options in Java 2.1, those that former releases had, and those of pypaimon."""
    upstream = {each.key() for each in vars(CoreOptions).values() if isinstance(each, ConfigOption)}
    of_streams = {key for key in upstream if key.startswith(PREFIXES)}
    assert {*JAVA_2_1.split(), *FORMER.split(), *of_streams} == KNOWN_STREAM_KEYS


def test_internal_modes_of_java_are_refused() -> None:
    with pytest.raises(UnsupportedTableError, match="stream-scan-mode"):
        settings(stream_scan_mode="file-monitor")
    assert settings(stream_scan_mode="none")


class TestOverwrites:
    """The option of the other kind of table counts for nothing, or is refused as Java does."""

    @staticmethod
    def reads(options: dict[str, str], chosen: OnOverwrite | None = None, primary_key: bool = False) -> bool:
        traits = TableTraits.of(schema(options, primary_key))
        return overwrite_policy(traits, options, chosen)

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


@pytest.mark.parametrize(
    ("options", "highest"), [({}, 5), ({"num-sorted-run.compaction-trigger": "3"}, 3), ({"num-levels": "3"}, 2)]
)
def test_full_compactions_lead_to_the_highest_level(options: dict[str, str], highest: int) -> None:
    found = TableTraits.of(schema({"changelog-producer": "full-compaction", **options}, primary_key=True))
    assert found.lowest_state_level == highest


def test_any_limit_is_a_limit() -> None:
    assert not Limits()
    assert all((Limits(max_rows=1), Limits(max_bytes=1), Limits(max_splits=1), Limits(until=ReadUnit((), 0, "f", 0))))


class TestWords:
    """Paimon's enums are read in any case, as Java does; pypaimon takes the names and members of its own ones too."""

    @staticmethod
    def traits(**options: Any) -> TableTraits:
        return TableTraits.of(schema({key.replace("_", "-"): value for key, value in options.items()}, True))

    @pytest.mark.parametrize("engine", UpstreamEngine)
    def test_merge_engines(self, engine: UpstreamEngine) -> None:
        told = [engine, engine.value, engine.value.upper(), engine.value.title(), engine.name, f" {engine.value} "]
        for value in (*told, engine.value.replace("-", "_")):
            assert self.traits(merge_engine=value).merge_engine == engine.value
            assert merge_engine_of({"merge-engine": value}) == engine.value

    @pytest.mark.parametrize("producer", UpstreamProducer)
    def test_changelog_producers(self, producer: UpstreamProducer) -> None:
        told = [producer, producer.value, producer.value.upper(), producer.value.title(), producer.name]
        for value in (*told, producer.value.replace("-", "_")):
            assert self.traits(changelog_producer=value).producer == producer.value
            assert option_keys.CHANGELOG_PRODUCER.of({"changelog-producer": value}) == producer.value

    @pytest.mark.parametrize("function", BucketFunctionType)
    def test_bucket_functions(self, function: BucketFunctionType) -> None:
        for value in (function.value, function.value.upper(), function.value.title()):
            assert option_keys.BUCKET_FUNCTION_TYPE.of({"bucket-function.type": value}) is function

    def test_without_the_option(self) -> None:
        assert merge_engine_of({}) is MergeEngineKind.DEDUPLICATE
        assert option_keys.CHANGELOG_PRODUCER.of({}) is ChangelogProducer.NONE
        assert option_keys.BUCKET_FUNCTION_TYPE.of({}) is BucketFunctionType.DEFAULT

    def test_unknown_ones_are_refused_by_name(self) -> None:
        with pytest.raises(UnsupportedTableError, match=r"'lightning' for key 'merge-engine'.*first-row"):
            merge_engine_of({"merge-engine": "lightning"})
        with pytest.raises(StreamConfigError, match=r"'loud' for key 'changelog-producer'.*full-compaction"):
            option_keys.CHANGELOG_PRODUCER.of({"changelog-producer": "loud"})
        with pytest.raises(StreamConfigError, match=r"'md5' for key 'bucket-function.type'"):
            option_keys.BUCKET_FUNCTION_TYPE.of({"bucket-function.type": "md5"})


def test_values_of_python_as_pypaimon_takes_them() -> None:
    found = options_of_table(
        schema(
            {  # type: ignore[arg-type]
                "scan.mode": StartupMode.FROM_SNAPSHOT,
                "scan.snapshot-id": 3,
                "scan.plan-sort-partition": True,
                "streaming.read.snapshot.delay": timedelta(minutes=2),
                "source.split.target-size": MemorySize.of_mebi_bytes(1),
                "source.split.open-file-cost": MemorySize.of_bytes(5),
            }
        )
    )
    assert found.start == Start(StartMode.FROM_SNAPSHOT, snapshot_id=3)
    assert found.sort_partitions is True
    assert found.delay_ms == 120_000
    assert (found.split_target_bytes, found.split_open_bytes) == (1 << 20, 5)


@pytest.mark.parametrize(
    ("text", "value"), [("TRUE", True), ("1", True), ("yes", True), ("Off", False), (" no ", False)]
)
def test_booleans(text: str, value: bool) -> None:
    assert OptionKey("b", BOOLEAN, not value).of({"b": text}) is value


# ---- on tables ----


def found_days(table: Any, partitions: str) -> list[str]:
    builder = stream_read_builder(table.copy({"scan.partitions": partitions}))
    with builder.with_end(latest=True).open_sync() as opened:
        return sorted({str(day) for batch in opened for day in batch.data["day"].to_pylist()})


@pytest.mark.parametrize(
    ("partitions", "days"),
    [
        ("day=2026-11-20", [20]),
        ("day=2026-11-21; day = 2026-11-22;", [21, 22]),
        ("day=__DEFAULT_PARTITION__", []),
        ("day=2030-01-01", []),
        ('{"day": "2026-11-20"}', [20]),
    ],
)
def test_only_the_partitions_of_the_option_are_read(tmp_path: Path, partitions: str, days: list[int]) -> None:
    table = events(catalog(tmp_path))
    assert found_days(table, partitions) == [f"2026-11-{day}" for day in days]
    builder = stream_read_builder(table.copy({"scan.partitions": partitions})).with_start("earliest")
    builder.with_filter(builder.new_predicate_builder().greater_than("value", 9)).with_end(latest=True)
    rows = read_with(builder)
    assert sorted({row["day"].day for row in rows}) == days
    assert all(row["value"] > 9 for row in rows)


@pytest.mark.parametrize(
    ("partitions", "error", "message"),
    [
        ("value=1", StreamConfigError, "'value' is not a partition column; the partition columns are day"),
        ("today", StreamConfigError, "'today' for key 'scan.partitions'"),
        ("day=today", StreamConfigError, "invalid value 'today' of partition column 'day' (DATE): expected a date"),
        (" ; ", StreamConfigError, "Set 'key=value"),
        ("max_pt()", UnsupportedTableError, "Name the partitions"),
        ("day=MAX_TWO_PT()", UnsupportedTableError, "Name the partitions"),
    ],
)
def test_partitions_that_cannot_be_read_are_refused(
    tmp_path: Path, partitions: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        found_days(events(catalog(tmp_path), commits=0), partitions)
    assert message in str(caught.value)


def test_every_handle_of_pypaimon_with_options_that_it_knows_opens(tmp_path: Path) -> None:
    """Each option with its default, as text and as the value of Python that pypaimon gives; those of Flink together."""
    table = create_orders(catalog(tmp_path))
    known = [each for each in vars(CoreOptions).values() if isinstance(each, ConfigOption)]
    fixed = {*CoreOptions.IMMUTABLE_OPTIONS, "bucket", "path"}
    defaults = {each.key(): each.default_value() for each in known if each.has_default_value()}
    defaults = {key: value for key, value in defaults.items() if key not in fixed}
    texts = {key: OptionKey(key, TEXT, None).of(defaults) for key in defaults}
    ignored = dict.fromkeys(["scan.bounded", "scan.push-down", "scan.plan-auto-tag-for-read.time-retained"], "true")
    assert len(defaults) > 50
    for options in (defaults, texts, ignored, {"scan.partitions": "max_pt()"}):
        with stream_read_builder(table.copy(options)).with_end(latest=True).open_sync() as opened:
            assert list(opened) == []


@pytest.mark.parametrize("engine", ["first-row", "FIRST-ROW", "First_Row"])
def test_a_table_whose_words_are_of_another_case_reads_alike(tmp_path: Path, engine: str) -> None:
    options = {"changelog_producer": "INPUT", "merge_engine": engine, "bucket_function__type": "Default"}
    table = Table(tmp_path, primary_key=True, **options)
    table.commit([(1, "first"), (2, "v2")])
    table.commit([(1, "second")])
    builder = table.builder().with_projection(["k", "v"]).with_end(latest=True)
    builder.with_filter(builder.new_predicate_builder().equal("k", 1))
    with builder.open_sync() as opened:
        (state,) = opened
    assert state.data.to_pylist() == [{"k": 1, "v": "first"}]


def test_durations_have_the_units_of_java() -> None:
    """Its `TimeUtils`, where a word of several letters may end with an s."""
    units = {"ms": ("ms", "milli", "millisecond"), "s": ("s", "sec", "second"), "min": ("m", "min", "minute")}
    units |= {"h": ("h", "hour"), "d": ("d", "day"), "ns": ("ns", "nano", "nanosecond"), "us": ("µs", "micro")}
    for unit, words in units.items():
        plurals = [f"{word}s" for word in words if word not in ("ms", "s", "m", "min", "h", "d", "ns", "µs")]
        for word in (*words, *plurals):
            assert DURATION.read("k", f"7000000 {word}", {}) == DURATION.read("k", f"7000000{unit.upper()}", {}), word
