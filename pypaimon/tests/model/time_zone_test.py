"""Time zones are those of Java: every moment and every time of clocks, also where they are set forward or back."""

from __future__ import annotations

import pickle
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.time_zone import TimeZone, time_zone, zone_by_clocks, zone_of
from support.process_state import in_zone

NAMES = [
    *("Asia/Shanghai", "America/New_York", "Europe/London", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"),
    *("Asia/Kolkata", "UTC"),
]
CHANGES = [datetime(2024, 3, 10, 2), datetime(2024, 11, 3, 1), datetime(2024, 3, 31, 1), datetime(2011, 12, 30)]
TIMES = st.datetimes(datetime(1850, 1, 1), datetime(2200, 1, 1)) | st.builds(
    lambda change, minutes: change + timedelta(minutes=minutes), st.sampled_from(CHANGES), st.integers(-300, 300)
)
NEW_YORK = [
    ("2024-03-10 01:59", "2024-03-10 06:59"),
    ("2024-03-10 02:30", "2024-03-10 07:30"),  # Clocks skip it: it is moved by as much as they are.
    ("2024-03-10 03:00", "2024-03-10 07:00"),
    ("2024-11-03 00:59", "2024-11-03 04:59"),
    ("2024-11-03 01:30", "2024-11-03 05:30"),  # Clocks pass it twice: it is the first time.
    ("2024-11-03 02:00", "2024-11-03 07:00"),
]


@pytest.mark.parametrize(("clock", "moment"), NEW_YORK)
def test_where_clocks_are_set_the_rule_is_java_s(clock: str, moment: str) -> None:
    clocks = pa.array([datetime.fromisoformat(clock)], pa.timestamp("ms"))
    found = time_zone("America/New_York").moments(clocks)
    assert found.cast(pa.timestamp("ms")).to_pylist() == [datetime.fromisoformat(moment)]


@given(st.sampled_from(NAMES), st.lists(TIMES, min_size=1, max_size=20), st.sampled_from(["ms", "us"]))
def test_every_time_is_that_of_the_tz_database(name: str, times: list[datetime], unit: str) -> None:
    """Of Python's two moments of a time (`fold`) Java's is the first one."""
    zone, database = time_zone(name), timezone.utc if name == "UTC" else ZoneInfo(name)
    times = [each.replace(microsecond=each.microsecond // 1000 * 1000) for each in times]
    array = pa.array([*times, None], pa.timestamp(unit))
    moments = zone.moments(array)
    assert moments.cast(pa.timestamp(unit)).to_pylist() == [*map(_utc_of(database), times), None]
    clocks = zone.wall_clocks(array.cast(pa.timestamp(unit, "UTC")))
    assert clocks.to_pylist() == [*(_shown(each, database) for each in times), None]
    for each in times:
        assert zone.moment(each).astimezone(timezone.utc).replace(tzinfo=None) == _utc_of(database)(each)
        assert zone.local(each.replace(tzinfo=timezone.utc)).replace(tzinfo=None) == _shown(each, database)
        millis = _millis(each)
        assert zone.wall_millis(millis) == _millis(_shown(each, database))
        assert zone.millis(millis) == _millis(_utc_of(database)(each))


def _utc_of(zone: timezone | ZoneInfo):  # type: ignore[no-untyped-def]
    return lambda clock: clock.replace(tzinfo=zone).astimezone(timezone.utc).replace(tzinfo=None)


def _shown(moment: datetime, zone: timezone | ZoneInfo) -> datetime:
    return moment.replace(tzinfo=timezone.utc).astimezone(zone).replace(tzinfo=None)


def _millis(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1)) // timedelta(milliseconds=1)


@given(st.sampled_from(["Asia/Tokyo", "America/New_York", "<+0530>-5:30"]), TIMES)
@example("America/New_York", datetime(2024, 11, 3, 1, 30))
def test_without_a_name_it_is_that_of_the_process(name: str, time: datetime) -> None:
    with in_zone(name):
        wanted = time.replace(tzinfo=timezone.utc).astimezone().replace(tzinfo=None)
        assert time_zone(None).local(time.replace(tzinfo=timezone.utc)).replace(tzinfo=None) == wanted


@pytest.mark.parametrize(
    ("name", "in_java"), [("+08:00", "GMT+08:00"), ("GMT-5", "GMT-05:00"), ("UTC+0530", "GMT+05:30"), ("CTT", "CTT")]
)
def test_offsets_and_short_names_are_those_of_java(name: str, in_java: str) -> None:
    zone = time_zone(name)
    assert zone.name == in_java
    assert pickle.loads(pickle.dumps(zone)) == zone
    hours = {"GMT+08:00": 8, "GMT-05:00": -5, "GMT+05:30": 5.5, "CTT": 8}[in_java]
    assert zone.offset(1_700_000_000) == hours * 3600


@pytest.mark.parametrize("name", ["Asia/Shangai", "", "+19:00", "../etc/passwd", "GMT+8:77", 8])
def test_a_zone_that_is_not_known_is_refused_in_one_line(name: object) -> None:
    with pytest.raises(StreamConfigError, match=r"^Option 'time-zone': there is no time zone .*") as caught:
        zone_of({"time-zone": name})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("first", "last", "name"),
    [
        # Of all zones that have these offsets none has others in between.
        ((datetime(2024, 6, 1), 8), (datetime(2024, 6, 3), 8), "+08:00"),
        ((datetime(2024, 6, 1), 0), (datetime(2024, 6, 3), 0), "UTC"),
        # In between New York had daylight saving, and Bogota had not.
        ((datetime(2024, 1, 1), -5), (datetime(2024, 12, 1), -5), None),
        # New York and Havana change on one day, at different hours.
        ((datetime(2024, 3, 1), -5), (datetime(2024, 4, 1), -4), None),
        ((datetime(2024, 6, 1), 8.1), (datetime(2024, 6, 1), 8.1), None),
    ],
)
def test_a_zone_is_found_by_clocks_where_only_one_fits(
    first: tuple[datetime, float], last: tuple[datetime, float], name: str | None
) -> None:
    shown = [(_millis(moment) // 1000, int(hours * 3600)) for moment, hours in (first, last)]
    clocks = frozenset((moment, moment + ahead) for moment, ahead in shown)
    assert zone_by_clocks(clocks, _millis(datetime(1930, 1, 1)) // 1000, shown[1][0]) is None
    found = zone_by_clocks(clocks, shown[0][0], shown[1][0])
    if name is None:
        assert found is None
        return
    assert found is not None
    moments = range(shown[0][0], shown[1][0], 3600)
    assert [found.offset(each) for each in moments] == [time_zone(name).offset(each) for each in moments]


def test_far_moments_take_the_offset_of_the_last_year_and_little_memory() -> None:
    zone = TimeZone("made up", lambda second: 3600)
    assert zone.offsets(np.array([-(1 << 61), 0, 1 << 61])).tolist() == [3600] * 3
    assert set(zone._spans) <= set(range(-(1 << 12), 1 << 14))
