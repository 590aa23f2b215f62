"""Random histories, written and streamed by live Java Paimon, streamed by ours: equal but for the listed deviations.

`make differential` and `make soak` run the same tests with more histories; the machine needs Maven and a JDK.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pypaimon import CatalogFactory

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.errors import StreamConfigError
from support.corpus.values import column_values, literal
from support.java.compare import examine
from support.java.families import FAMILIES
from support.java.followed import Tally
from support.java.histories import History, random_histories
from support.java.live import COMMANDS, LiveJava, missing_commands
from support.process_state import in_zone
from support.repository import TESTS
from support.samples import IS_DIFFERENTIAL, drawn_kinds, histories

pytestmark = [pytest.mark.java, pytest.mark.soak]

LONG = IS_DIFFERENTIAL
DRAWN = drawn_kinds("families", FAMILIES, 4)
"""Which kinds of tables are looked at: some in the short form."""
FOUND = json.loads((TESTS / "live_java" / "found.json").read_text())
LOCAL = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
NANOS = ["TIMESTAMP(9) WITH LOCAL TIME ZONE", "TIMESTAMP(9)"]
TIMESTAMPS = [
    # Without a column of the second type Java's ORC files do not name the zone of their writer.
    ("orc", [LOCAL], False),
    ("orc", [LOCAL], True),
    ("orc", [LOCAL, "TIMESTAMP(6)"], False),
    ("orc", NANOS, False),
    # Beyond microseconds they are INT96.
    ("parquet", NANOS, False),
]
"""Formats, types, and whether the reader is told the zone."""
CASTS = [
    *[(LOCAL, each) for each in ("STRING", "TIMESTAMP(3)", "TIMESTAMP(6)", "DATE", "TIME(3)", "BIGINT")],
    *[(each, LOCAL) for each in ("STRING", "TIMESTAMP(3)", "DATE", "TIME(3)", "BIGINT", "INT")],
    ("TIMESTAMP(9) WITH LOCAL TIME ZONE", "STRING"),
]
MOMENTS = [
    *("1899-12-31T10:00:00", "1900-06-01T10:00:00", "1969-12-31T20:00:00", "1970-01-01T00:00:00.500"),
    *("1970-01-01T07:59:59", "1970-01-01T09:00:00.500", "1988-07-01T12:00:00", "2024-03-10T01:30:00"),
    # Clocks of New York skip the first, and pass the second twice.
    *("2024-03-10T02:30:00", "2024-11-03T01:30:00", "2024-11-03T05:30:00", "2024-11-03T06:30:00"),
    *("2024-03-10T07:30:00", "2024-07-01T20:00:00.120"),
]
WEEK = ["2024-06-15T20:00:00", "2024-06-16T02:30:00.500", "2024-06-18T00:00:00", "2024-06-20T12:00:00"]
BUDGET = settings(
    deadline=None,
    derandomize=not LONG,
    max_examples=histories(8, len(DRAWN)),
    phases=(Phase.generate, Phase.shrink),
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)


def test_where_a_live_java_can_run(tmp_path: Path) -> None:
    assert missing_commands(path=str(tmp_path)) == list(COMMANDS)
    for name in COMMANDS:
        (tmp_path / name).touch(mode=0o755)
    assert missing_commands(path=str(tmp_path)) == []


@pytest.mark.parametrize("found", FOUND, ids=[each["name"] for each in FOUND])
def test_histories_that_once_differed(java: LiveJava, found: dict[str, object]) -> None:
    """Every difference that was found, shrunk."""
    history = History.from_json(found["history"])  # type: ignore[arg-type]
    assert not [str(finding) for finding in examine(java, history, Tally())]


@pytest.mark.parametrize(
    ("format_", "kinds", "told", "zone"),
    [
        (*of_file, zone)
        for number, of_file in enumerate(TIMESTAMPS)
        for place, zone in enumerate(["Asia/Shanghai", "America/New_York", "GMT+08:00"])
        # Each file in two of the zones.
        if LONG or (number + place) % 3
    ],
)
def test_timestamps_of_java_are_read_in_any_zone(
    java: LiveJava, tmp_path: Path, format_: str, kinds: list[str], told: bool, zone: str
) -> None:
    """As Java reads them in its own zone, and filters find them, in whatever zone the process is."""
    columns = [f"c{number}" for number in range(len(kinds))]
    java.call(
        "create",
        warehouse=str(tmp_path),
        fields=[["k", "INT"], *([name, kind] for name, kind in zip(columns, kinds, strict=True))],
        partition_keys=[],
        primary_keys=[],
        options={"bucket": "-1", "file.format": format_, "metadata.stats-mode": "full"},
        zone=zone,
    )
    moments = MOMENTS if told or len(kinds) > 1 else WEEK
    java.call("write", flushes=[[["+I", number, *([each] * len(kinds))] for number, each in enumerate(moments)]])
    rows = _rows_of(java)
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    table = table.copy({"time-zone": zone} if told else {})
    for process in ("UTC", "America/New_York", "Asia/Tokyo"):
        with in_zone(process):
            assert _values(table, columns, kinds) == rows
            for name, kind, text in zip(columns, kinds, rows[3], strict=True):
                builder = stream_read_builder(table)
                equal = builder.new_predicate_builder().equal(name, literal(text, kind))
                plan = builder.with_filter(equal).new_streaming_scan().plan()
                assert plan is not None
                assert 3 in builder.new_read().to_arrow(plan.splits())["k"].to_pylist()


@pytest.mark.parametrize(
    ("zone", "process", "is_told"),
    [
        ("America/New_York", "America/New_York", True),
        # Zones without daylight saving show the same in winter.
        ("America/New_York", "UTC", False),
        ("UTC", "Asia/Tokyo", True),
        ("UTC", "Europe/London", False),
    ],
)
def test_a_zone_that_nothing_shows_is_refused_by_name(
    java: LiveJava, tmp_path: Path, zone: str, process: str, is_told: bool
) -> None:
    """Of a file that does not name its zone, whose first and last values are of winter."""
    java.call(
        "create",
        warehouse=str(tmp_path),
        fields=[["k", "INT"], ["c", LOCAL]],
        partition_keys=[],
        primary_keys=[],
        options={"bucket": "-1", "file.format": "orc"},
        zone=zone,
    )
    texts = ["2024-01-01T00:00:00", "2024-07-01T00:00:00", "2024-12-01T00:00:00"]
    java.call("write", flushes=[[["+I", number, text] for number, text in enumerate(texts)]])
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    rows = _rows_of(java)
    with in_zone(process):
        assert _values(table.copy({"time-zone": zone}), ["c"], [LOCAL]) == rows
        if is_told:
            assert _values(table, ["c"], [LOCAL]) == rows
            return
        with pytest.raises(StreamConfigError, match=r"Column 'c' of .*\.orc holds .* option 'time-zone'"):
            _values(table, ["c"], [LOCAL])


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "America/New_York"])
def test_casts_are_those_of_java_in_its_zone(java: LiveJava, tmp_path: Path, zone: str) -> None:
    """After the types of columns have changed, also where clocks are set forward and back."""
    columns = [f"c{number}" for number in range(len(CASTS))]
    java.call(
        "create",
        warehouse=str(tmp_path),
        fields=[["k", "INT"], *([name, old] for name, (old, _) in zip(columns, CASTS, strict=True))],
        partition_keys=[],
        primary_keys=[],
        options={"bucket": "-1", "file.format": "parquet"},
        zone=zone,
    )
    flush = [["+I", number, *(_given(each, old) for old, _ in CASTS)] for number, each in enumerate(MOMENTS)]
    java.call("write", flushes=[flush])
    for name, (_, new) in zip(columns, CASTS, strict=True):
        java.call("alter", changes=[["type", name, new]])
    rows = _rows_of(java)
    table = CatalogFactory.create({"warehouse": str(tmp_path)}).get_table("d.t")
    kinds = [new for _, new in CASTS]
    assert _values(table.copy({"time-zone": zone}), columns, kinds) == rows
    with in_zone(zone):
        assert _values(table, columns, kinds) == rows


def _rows_of(java: LiveJava) -> dict[int, list[Any]]:
    reply = java.call("read", options={"scan.mode": "latest-full"})
    found = (row for plan in reply["plans"] for split in plan["splits"] for row in split["rows"])
    return {row[1]: row[2:] for row in found}


def _values(table: Any, columns: list[str], kinds: list[str]) -> dict[int, list[Any]]:
    builder = stream_read_builder(table)
    plan = builder.new_streaming_scan().plan()
    assert plan is not None
    rows = builder.new_read().to_arrow(plan.splits())
    values = [column_values(rows[name], kind) for name, kind in zip(columns, kinds, strict=True)]
    return {key: list(row) for key, row in zip(rows["k"].to_pylist(), zip(*values, strict=True), strict=True)}


def _given(moment: str, kind: str) -> Any:
    if kind in ("INT", "BIGINT"):
        return int(datetime.fromisoformat(moment).replace(tzinfo=timezone.utc).timestamp() // 1)
    texts = {"STRING": moment.replace("T", " "), "DATE": moment[:10], "TIME(3)": moment[11:19] + ".000"}
    return texts.get(kind, moment)


@pytest.mark.parametrize("family", DRAWN)
def test_random_histories(java: LiveJava, family: str) -> None:
    """Histories of one kind of table."""
    tally = Tally()

    @BUDGET
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        history = data.draw(random_histories(family))
        findings = [str(finding) for finding in examine(java, history, tally)]
        if findings:
            pytest.fail("\n".join([json.dumps(history.to_json()), *findings]), pytrace=False)

    try:
        compare()
    finally:
        print(f"{family}: {tally}", *tally.most_common(), sep="\n    ")
    assert tally.reads > tally.histories
