"""ORC files of another time zone than UTC: what is written as a writer there has it comes back as it was."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.orc as orc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.file_format import WriteSettings
from pypaimon.streaming.formats.orc_checks import open_orc
from pypaimon.streaming.formats.orc_reader import OrcFileReader
from pypaimon.streaming.formats.orc_writer import OrcFileWriter, OrcZone
from pypaimon.streaming.model.normal_form import normal_table
from pypaimon.streaming.model.time_zone import TimeZone, time_zone
from support.process_state import in_zone
from support.pyarrow_limits import FAR_ARE_REFUSED
from support.samples import seeded

ZONES = ["Asia/Shanghai", "America/New_York", "Europe/London", "Asia/Kolkata", "+08:00"]
FIRST, LAST = (1678, 2262) if FAR_ARE_REFUSED else (1600, 2400)
TIMES = st.datetimes(datetime(FIRST, 1, 1), datetime(LAST, 1, 1)).map(lambda each: each.replace(microsecond=0))
NEAR = st.integers(-2 * 86_400_000, 2 * 86_400_000).map(
    lambda millis: datetime(1970, 1, 1) + timedelta(0, 0, 0, millis)
)


def zone_of_file(stated: str | None, bounds: Mapping[str, Any], columns: Sequence[str]) -> TimeZone | None:
    assert stated is not None
    return time_zone(stated)


def encoded(table: pa.Table, zone: str, compression: str = "zstd") -> io.BytesIO:
    file = io.BytesIO()
    with closing(OrcFileWriter(file, table.schema, WriteSettings(compression, orc_zone=time_zone(zone)))) as encoder:
        encoder.write(normal_table(table, encoder.schema))
    file.seek(0)
    return file


def read(file: io.BytesIO, columns: list[str], *, in_pieces: bool = False) -> pa.Table:
    file.seek(0)
    source = OrcFileReader(file, zone_of_file)
    with pytest.MonkeyPatch.context() as patch:
        if in_pieces:
            patch.setattr("pypaimon.streaming.formats.orc_reader._WHOLE_STRIPE", 0)
        return pa.Table.from_batches(source.batches(columns, 7 if in_pieces else 1000)).select(columns)


@settings(max_examples=30)
@given(st.sampled_from(ZONES), st.lists(TIMES | NEAR | st.none(), min_size=1, max_size=30))
def test_timestamps_of_every_kind_come_back(zone: str, times: list[datetime | None]) -> None:
    stamps = pa.array(times, pa.timestamp("us"))
    moments = stamps.cast(pa.timestamp("us", "UTC"))
    columns = {
        "t": stamps,
        "l": moments,
        "s": pa.StructArray.from_arrays([stamps, moments], ["t", "l"], mask=stamps.is_null()),
        "a": pa.array([each and [each, each] for each in times], pa.list_(moments.type)),
        "m": pa.array([each and [(each, each)] for each in times], pa.map_(stamps.type, moments.type)),
    }
    table = pa.table(columns)
    try:
        file = encoded(table, zone)
    except UnsupportedTableError:
        # Clocks skip the time, or it has a fraction and is near to 1970.
        given = [each for each in times if each is not None]
        assert any(each.year in (1969, 1970) or _skipped(each, zone) for each in given)
        return
    for process, in_pieces in (("UTC", False), ("Asia/Tokyo", False), ("Asia/Tokyo", True)):
        with in_zone(process):
            for names in (["t"], ["l", "s"], ["a", "m"]):
                found = read(file, names, in_pieces=in_pieces)
                for name in names:
                    assert found[name].to_pylist() == _as_read(table[name], found[name].type)


def _skipped(moment: datetime, zone: str) -> bool:
    clock = time_zone(zone)
    shown = clock.wall_clocks(clock.moments(pa.array([moment], pa.timestamp("us"))))
    return bool(shown[0].as_py() != moment)


def _as_read(column: pa.ChunkedArray, kind: pa.DataType) -> list[Any]:
    """As values of the type that was read, which may be of nanoseconds."""
    return list(pa.chunked_array([each.cast(kind) for each in column.chunks]).to_pylist())


@pytest.mark.parametrize("compression", ["zstd", "none", "snappy", "lz4", "zlib"])
def test_each_of_several_stripes_names_the_zone(compression: str) -> None:
    """Other columns are as they were, whoever reads them, and there is no index, by which Java's filters lose rows."""
    written, file = io.BytesIO(), io.BytesIO()
    source = seeded("timestamps of several stripes")
    seconds = [source.randrange(366 * 86_400) for _ in range(60_000)]
    times = pa.array([datetime(2024, 1, 1) + timedelta(seconds=each) for each in seconds], pa.timestamp("us"))
    numbers = pa.array([source.randrange(1 << 60) for _ in seconds], pa.int64())
    table = pa.table({"k": numbers, "t": times, "l": times.cast(pa.timestamp("us", "UTC"))})
    clocks = time_zone("America/New_York")
    table = table.filter(pc.equal(clocks.wall_clocks(clocks.moments(times)), times))
    names = {"none": "uncompressed"}
    zone = OrcZone(time_zone("America/New_York"))
    codec = names.get(compression, compression)
    sizes = {"stripe_size": 1 << 14, "batch_size": 512, "compression_block_size": 1 << 16}
    with orc.ORCWriter(written, compression=codec, **sizes) as writer:
        for start in range(0, table.num_rows, 1000):
            writer.write(zone.stored(table.slice(start, 1000)))
    zone.put_into(file, written)
    data = file.getvalue()
    checks, opened = open_orc(file, lambda start, end: data[start:end])
    assert checks is not None
    assert len(checks.stripes) > 2 and opened.nrows == table.num_rows
    assert {checks.writer_zone(index) for index in range(len(checks.stripes))} == {"America/New_York"}
    assert orc.ORCFile(io.BytesIO(data)).read(["k"])["k"].to_pylist() == table["k"].to_pylist()
    for in_pieces in (False, True):
        assert read(file, ["k", "t", "l"], in_pieces=in_pieces).cast(table.schema).equals(table)
    # What the footer says of all rows is what clocks show.
    shown = table["t"].cast(pa.timestamp("ms")).cast(pa.int64()).to_pylist()
    assert checks.tail.bounds(checks.type_of("t")) == (min(shown), max(shown))


def test_a_zone_that_a_file_names_and_nobody_knows_is_refused_by_name() -> None:
    file = encoded(
        pa.table({"l": pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "UTC"))}), "Asia/Shanghai", "none"
    )
    data = file.getvalue().replace(b"Asia/Shanghai", b"Asia/Shanghau")
    with pytest.raises(UnsupportedTableError, match="no time zone 'Asia/Shanghau'"):
        read(io.BytesIO(data), ["l"])


def test_a_machine_without_a_tz_database_is_reported(tmp_path: Path) -> None:
    """Arrow may ask for it with any ORC file. That does not mean that the file is damaged."""
    orc.write_table(pa.table({"k": [1]}), str(tmp_path / "x.orc"))
    program = (
        "import sys\nfrom pypaimon.streaming.errors import UnsupportedTableError\n"
        "from pypaimon.streaming.formats.orc_reader import OrcFileReader\n"
        "try:\n    print(len(list(OrcFileReader(open(sys.argv[1], 'rb')).batches(['k'], 1))))\n"
        "except UnsupportedTableError as error:\n    print(error)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "x.orc")]
    found = subprocess.run(command, env={"TZDIR": str(tmp_path)}, capture_output=True, text=True, check=True)
    # Some releases of pyarrow need no database for a file without timestamps.
    assert found.stdout == "1\n" or "TZDIR" in found.stdout
