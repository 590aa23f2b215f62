"""Which automatic tags are due: periods, delays, completion, zones; compared with a model that follows Java's words."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.maintenance.automatic_tags import BatchTags, PeriodTags, automatic_tags
from pypaimon.streaming.maintenance.tags import Tag
from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.model.time_zone import time_zone

NOW = 2**62
HOUR = 3_600_000
DAILY = {"tag.automatic-creation": "process-time", "sink.process-time-zone": "UTC"}


def rule(**options: str) -> Any:
    named = {key.replace("__", ".").replace("_", "-"): value for key, value in options.items()}
    return automatic_tags(SimpleNamespace(options=named, name="db.t", zone=time_zone("UTC")))  # type: ignore[arg-type]


def process_time(**options: str) -> PeriodTags:
    made = rule(tag__automatic_creation="process-time", **options)
    assert isinstance(made, PeriodTags)
    return made


def snapshot(number: int, moment: datetime | int, watermark: int | None = None) -> Snapshot:
    millis = moment if isinstance(moment, int) else round(moment.timestamp() * 1000)
    return Snapshot(
        number, 0, "base", "delta", None, None, "u", number, "APPEND", millis, None, None, None, watermark, None
    )


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def due(made: Any, times: list[str], tags: dict[str, int] | None = None, now: int = 0) -> dict[str, int]:
    """Names of the tags that are due of snapshots of these times, with their ids."""
    snapshots = [snapshot(number, utc(each)) for number, each in enumerate(times, 1)]
    known = [Tag(name, snapshots[number - 1]) for name, number in (tags or {}).items()]
    return {name: each.id for name, each in made.due(snapshots, known, now).items()}


def test_the_first_snapshot_after_a_period_is_tagged() -> None:
    times = ["2026-03-01 10:00", "2026-03-01 23:59", "2026-03-02 00:00", "2026-03-02 09:00", "2026-03-03 01:00"]
    assert due(process_time(), times) == {"2026-02-28": 1, "2026-03-01": 3, "2026-03-02": 5}


def test_a_delay_moves_the_moment_and_not_the_name() -> None:
    times = ["2026-03-01 10:00", "2026-03-02 01:59", "2026-03-02 02:00"]
    assert due(process_time(tag__creation_delay="2 h"), times) == {"2026-02-28": 1, "2026-03-01": 3}


def test_periods_without_a_snapshot() -> None:
    times = ["2026-03-01 10:00", "2026-03-05 10:00", "2026-03-05 11:00", "2026-03-05 12:00", "2026-03-05 13:00"]
    assert due(process_time(), times) == {"2026-02-28": 1, "2026-03-04": 2}
    completing = process_time(tag__automatic_completion="true")
    assert due(completing, times) == {
        "2026-02-28": 1,
        "2026-03-01": 2,
        "2026-03-02": 3,
        "2026-03-03": 4,
        "2026-03-04": 5,
    }


def test_the_newest_tag_is_where_it_goes_on() -> None:
    times = ["2026-03-01 10:00", "2026-03-02 10:00", "2026-03-03 10:00"]
    assert due(process_time(), times, {"2026-03-01": 2}) == {"2026-03-02": 3}
    assert due(process_time(), times, {"2026-03-01": 2, "mine": 3}) == {"2026-03-02": 3}
    assert due(process_time(), times, {"2026-03-01": 2, "2026-03-02 x": 3}) == {}, "by its name it is automatic"


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["2026-02-28", "2026-03-01"]),
        ({"tag__period_formatter": "without_dashes"}, ["20260228", "20260301"]),
        ({"tag__creation_period": "hourly"}, ["2026-03-01 09", "2026-03-02 10"]),
        ({"tag__creation_period": "hourly", "tag__period_formatter": "without_dashes"}, ["20260301 09", "20260302 10"]),
        (
            {"tag__creation_period": "hourly", "tag__period_formatter": "without_dashes_and_spaces"},
            ["2026030109", "2026030210"],
        ),
        ({"tag__creation_period": "two-hours"}, ["2026-03-01 08", "2026-03-02 08"]),
        (
            {"tag__creation_period": "two-hours", "tag__period_formatter": "without_dashes"},
            ["2026-03-01 08", "2026-03-02 08"],
        ),
        ({"tag__creation_period_duration": "15 min"}, ["202603010945", "202603021100"]),
    ],
)  # fmt: skip
def test_names_of_tags(options: dict[str, str], names: list[str]) -> None:
    assert [*due(process_time(**options), ["2026-03-01 10:10", "2026-03-02 11:29"])] == names


def test_watermarks_are_the_time_where_the_table_asks_for_it() -> None:
    made = rule(tag__automatic_creation="watermark", sink__watermark_time_zone="Asia/Shanghai")
    late = round(utc("2026-03-01 16:00").timestamp() * 1000)
    snapshots = [
        snapshot(1, NOW % 10**12, None),
        snapshot(2, 0, late - 1),
        snapshot(3, 0, late),
        snapshot(4, 0, late + 24 * HOUR),
    ]
    assert {name: each.id for name, each in made.due(snapshots, (), 0).items()} == {
        "2026-02-28": 2, "2026-03-01": 3, "2026-03-02": 4,
    }  # fmt: skip


def test_clocks_that_change() -> None:
    """A day of 23 hours is one of 24 in the arithmetic of local times, as in Java."""
    made = process_time(tag__creation_period="hourly", sink__process_time_zone="Europe/Berlin")
    spring = [f"2026-03-29 0{hour}:30" for hour in range(3)]
    assert [*due(made, spring)] == ["2026-03-29 00", "2026-03-29 02", "2026-03-29 03"]
    autumn = ["2026-10-24 23:30", "2026-10-25 00:30", "2026-10-25 01:30", "2026-10-25 02:30"]
    assert [*due(made, autumn)] == ["2026-10-25 00", "2026-10-25 01", "2026-10-25 02"]


def test_a_tag_that_would_have_expired_is_not_created() -> None:
    """Otherwise a table without commits gets its last tag again whenever it has expired."""
    made = process_time(tag__default_time_retained="2 d")
    times = ["2026-03-01 10:00", "2026-03-02 10:00"]
    at = {day: round(utc(f"2026-03-{day} 10:00").timestamp() * 1000) for day in ("03", "04", "05")}
    assert due(made, times, now=at["03"]) == {"2026-02-28": 1, "2026-03-01": 2}
    assert due(made, times, now=at["04"]) == {"2026-03-01": 2}
    assert due(made, times, now=at["05"] + 1) == {}


def test_the_oldest_of_too_many_go() -> None:
    made = process_time(tag__num_retained_max="2")
    snapshots = [snapshot(number, 0) for number in range(5)]
    tags = [Tag(f"2026-03-0{each.id + 1}", each) for each in snapshots] + [Tag("mine", snapshots[0])]
    assert made.surplus(tags) == ("2026-03-01", "2026-03-02", "2026-03-03")
    assert process_time().surplus(tags) == ()


def test_two_automatic_tags_of_one_snapshot_are_refused() -> None:
    made = process_time(tag__num_retained_max="1")
    one, two = snapshot(1, 0), snapshot(2, 0)
    tags = [Tag("2026-03-01", one), Tag("2026-03-02", one)]
    for call in (lambda: made.due([one], tags, 0), lambda: made.surplus([*tags, Tag("2026-03-03", two)])):
        with pytest.raises(StreamConfigError, match="two automatic tags, '2026-03-01' and '2026-03-02'"):
            call()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tag__creation_delay": "1 d"}, "creation-delay"),
        ({"tag__creation_period_duration": "0 s"}, "less than the period"),
        ({"tag__creation_period": "weekly"}, "weekly"),
        ({"tag__num_retained_max": "0"}, "num-retained-max"),
        ({"sink__process_time_zone": "Mars"}, "sink.process-time-zone"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], named: str) -> None:
    with pytest.raises(StreamConfigError) as caught:
        process_time(**options)
    assert named in f"{caught.value} {caught.value.option}"


def test_no_table_has_automatic_tags_unless_it_asks() -> None:
    assert rule() is None and rule(tag__automatic_creation="none") is None


def test_idle_means_that_nothing_is_due() -> None:
    made = process_time(tag__creation_delay="1 h")
    assert made.is_idle(["2026-03-01", "mine"], snapshot(9, utc("2026-03-03 00:59")))
    assert not made.is_idle(["2026-03-01", "mine"], snapshot(9, utc("2026-03-03 01:00")))
    assert not made.is_idle(["mine"], snapshot(9, utc("2026-03-03 01:00")))
    assert rule(tag__automatic_creation="watermark").is_idle([], snapshot(9, 0))


# ---- Batch mode


def test_the_latest_snapshot_of_a_day_has_the_batch_tag() -> None:
    made = rule(tag__automatic_creation="batch")
    assert isinstance(made, BatchTags)
    times = ["2026-03-01 10:00", "2026-03-02 11:00"]
    assert due(made, times) == {"batch-write-2026-03-02": 2}
    assert due(made, times, {"batch-write-2026-03-02": 1}) == {"batch-write-2026-03-02": 2}, "it is to be replaced"
    assert due(made, times, {"batch-write-2026-03-02": 2}) == {} == due(made, [])
    assert due(rule(tag__automatic_creation="batch", tag__batch__customized_name="now"), times) == {"now": 2}
    retained = rule(tag__automatic_creation="batch", tag__default_time_retained="1 d")
    assert due(retained, times, now=round(utc("2026-03-03 11:01").timestamp() * 1000)) == {}


def test_batch_mode_deletes_no_tag_of_a_user() -> None:
    """Java counts and deletes all tags."""
    made = rule(tag__automatic_creation="batch", tag__num_retained_max="1")
    tags = [
        Tag("mine", snapshot(1, 0)),
        Tag("batch-write-2026-03-01", snapshot(2, 0)),
        Tag("2026-03-01", snapshot(3, 0)),
    ]
    assert made.surplus(tags) == ()
    assert made.surplus([*tags, Tag("batch-write-2026-03-02", snapshot(4, 0))]) == ("batch-write-2026-03-01",)


# ---- A model

PERIODS = {"daily": timedelta(days=1), "hourly": timedelta(hours=1), "two-hours": timedelta(hours=2)}
FORMATS = {
    "with-dashes": ("%Y-%m-%d", "%Y-%m-%d %H"),
    "without-dashes": ("%Y%m%d", "%Y%m%d %H"),
    "without-dashes-and-spaces": ("%Y%m%d", "%Y%m%d%H"),
}
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia")
SPANS = (utc("2026-03-27 00:00"), utc("2026-10-23 00:00"), utc("2011-12-28 00:00"))


def modelled(
    moments: list[datetime], period: str, formatter: str, zone: str, delay: timedelta, completes: bool
) -> dict[str, int]:
    """The tags of a history, by `zoneinfo` and `strftime`: each snapshot in turn, as Java's commits do."""
    step = PERIODS[period]
    pattern = FORMATS["with-dashes" if period == "two-hours" else formatter][period != "daily"]
    found: dict[str, int] = {}
    last: datetime | None = None
    for number, moment in enumerate(moments, 1):
        local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        if last is not None and local - delay < last + 2 * step:
            continue
        midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
        begin = midnight + (local - midnight) // step * step - step
        if completes and last is not None:
            begin = last + step
        found.setdefault(begin.strftime(pattern), number)
        last = begin
    return found


@given(
    steps=st.lists(st.integers(0, 30 * 60), max_size=30),
    first=st.sampled_from(SPANS),
    period=st.sampled_from(list(PERIODS)),
    formatter=st.sampled_from(list(FORMATS)),
    zone=st.sampled_from(ZONES),
    delay=st.integers(0, 59),
    completes=st.booleans(),
    cut=st.integers(0, 30),
)
@example([60] * 30, SPANS[0], "hourly", "with-dashes", "Europe/Berlin", 30, True, 7)
def test_tags_of_any_history(
    steps: list[int], first: datetime, period: str, formatter: str, zone: str, delay: int, completes: bool, cut: int
) -> None:
    """In one run, and in two of which the second knows only the tags of the first."""
    moments, moment = [], first
    for step in steps:
        moment += timedelta(minutes=step)
        moments.append(moment)
    made = process_time(
        tag__creation_period=period, tag__period_formatter=formatter, sink__process_time_zone=zone,
        tag__creation_delay=f"{delay} min", tag__automatic_completion=str(completes).lower(),
    )  # fmt: skip
    expected = modelled(moments, period, formatter, zone, timedelta(minutes=delay), completes)
    snapshots = [snapshot(number, each) for number, each in enumerate(moments, 1)]
    assert {name: each.id for name, each in made.due(snapshots, (), NOW).items()} == expected
    before = [Tag(name, each) for name, each in made.due(snapshots[:cut], (), NOW).items()]
    later = made.due(snapshots, before, NOW)
    assert {each.name: each.snapshot.id for each in before} | {
        name: each.id for name, each in later.items()
    } == expected
    if snapshots[:cut] and made.is_idle([each.name for each in before], snapshots[:cut][-1]):
        assert made.due(snapshots[:cut], before, NOW) == {}
