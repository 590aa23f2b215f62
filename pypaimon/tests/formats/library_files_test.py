"""Data files of the formats that extras read, `lance`, `vortex` and `mosaic`: as pypaimon writes them, and damaged."""

from __future__ import annotations

import datetime as dt
import errno
import os
import re
import resource
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pypaimon.streaming import CorruptTableError, UnsupportedTableError
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.formats.external_formats import decoding
from pypaimon.streaming.model.plan import SplitMode
from support.tables.handles import create_table, current_files
from support.tables.stream_files import reader, split, write

pytestmark = pytest.mark.slow

PLAIN = [
    ("id", pa.int64()),
    ("s", pa.string()),
    ("b", pa.bool_()),
    ("f", pa.float32()),
    ("d", pa.decimal128(20, 3)),
    ("t", pa.timestamp("us")),
    ("day", pa.date32()),
    ("x", pa.binary()),
]
NESTED = [("l", pa.list_(pa.string())), ("r", pa.struct([("a", pa.int32()), ("c", pa.string())]))]
COLUMNS = {
    "lance": pa.schema([*PLAIN, *NESTED]),
    "vortex": pa.schema([*PLAIN, *NESTED]),
    # Its writer takes no rows.
    "mosaic": pa.schema([*PLAIN, NESTED[0]]),
}
# There is no package of Vortex for Python 3.10.
FORMATS = [name for name in COLUMNS if name != "vortex" or sys.version_info >= (3, 11)]
MODULES = {"lance": "lance.file", "vortex": "vortex", "mosaic": "mosaic"}
KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


def rows(columns: pa.Schema, count: int) -> pa.Table:
    """Values of every type, nulls among them."""
    made = {
        "id": list(range(count)),
        "s": [None if n % 3 == 0 else "é" * (n % 50) for n in range(count)],
        "b": [n % 2 == 0 for n in range(count)],
        "f": [n / 2 for n in range(count)],
        "d": [None if n % 5 == 0 else Decimal(-n).scaleb(-3) for n in range(count)],
        "t": [dt.datetime(1969, 12, 31) + dt.timedelta(hours=n, microseconds=n) for n in range(count)],
        "day": [dt.date(1969, 12, 31) + dt.timedelta(days=n) for n in range(count)],
        "x": [bytes(n % 4) for n in range(count)],
        "l": [["a", None][: n % 3] if n % 4 else None for n in range(count)],
        "r": [{"a": n, "c": "c"} for n in range(count)],
    }
    return pa.table({name: pa.array(made[name], columns.field(name).type) for name in columns.names}, schema=columns)


def table_of(catalog: Any, file_format: str) -> Any:
    return create_table(catalog, file_format, COLUMNS[file_format], options={"file.format": file_format})


@pytest.mark.parametrize("file_format", [name for name in FORMATS if name != "mosaic"])
def test_wide_rows_come_in_batches_of_this_many_bytes(warehouse: Any, file_format: str) -> None:
    """Of Mosaic a row group is the least that its library reads."""
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    table = create_table(warehouse, "t", schema, options={"file.format": file_format})
    texts = [chr(97 + n % 5) * 20_000 for n in range(3000)]
    files = write(table, pa.table({"id": range(3000), "s": texts}, schema))
    assert sum(file.file_size for file in files) < 20_000_000
    batches = list(reader(table, include_row_kind=False).iter_batches([split(SplitMode.ROWS, files)]))
    assert pa.Table.from_batches(batches)["s"].to_pylist() == texts
    assert max(batch.nbytes for batch in batches) < 24 << 20


@pytest.mark.parametrize("projection", [None, ("s", "id"), ("l",)])
@pytest.mark.parametrize("file_format", FORMATS)
def test_values_of_every_type(warehouse: Any, file_format: str, projection: tuple[str, ...] | None) -> None:
    table = table_of(warehouse, file_format)
    written = rows(table_columns := COLUMNS[file_format], 500)
    files = write(table, written)
    assert Path(files[0].file_path).suffix == f".{file_format}"
    read = reader(table, projection=projection, include_row_kind=False, batch_size=70)
    batches = list(read.iter_batches([split(SplitMode.ROWS, files)]))
    assert max(batch.num_rows for batch in batches) <= 70
    found = pa.Table.from_batches(batches)
    assert found.to_pylist() == written.select(projection or table_columns.names).to_pylist()


@pytest.mark.parametrize("file_format", FORMATS)
def test_files_of_a_primary_key_table_are_merged(warehouse: Any, file_format: str) -> None:
    table = create_table(
        warehouse, "k", KEYED, primary_keys=["id"], options={"file.format": file_format, "bucket": "1"}
    )
    for batch, start in enumerate((0, 100)):
        write(table, pa.table({"id": range(start, start + 200), "v": [f"{batch}"] * 200}, schema=KEYED))
    read = reader(table, include_row_kind=False).to_arrow([split(SplitMode.MERGE, current_files(table))])
    assert read.to_pylist() == [{"id": number, "v": "0" if number < 100 else "1"} for number in range(300)]


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("left", [0, 10, 0.5])
def test_a_file_that_was_cut_is_damaged(warehouse: Any, file_format: str, left: float) -> None:
    table = table_of(warehouse, file_format)
    (file,) = write(table, rows(COLUMNS[file_format], 100))
    path = Path(file.file_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(left if left != 0.5 else len(data) / 2)])
    with pytest.raises(CorruptTableError) as raised:
        reader(table).to_arrow([split(SplitMode.ROWS, [file])])
    assert raised.value.path == str(path)


def test_a_failure_of_the_machine_is_not_damage() -> None:
    """Else `scan.ignore-corrupt-files` would leave out the rows of a file that is whole."""
    with pytest.raises(OSError, match="Too many open files"), decoding():
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    with pytest.raises(ValueError, match="no magic"), decoding():
        raise OSError("no magic")


def test_a_disk_that_is_full_is_an_error_that_says_which(warehouse: Any) -> None:
    table = table_of(warehouse, "lance")
    files = write(table, rows(COLUMNS["lance"], 100))
    most, highest = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, highest))
    try:
        with pytest.raises(StoreError, match=rf"in {re.escape(tempfile.gettempdir())} cannot be written.*TMPDIR"):
            reader(table).to_arrow([split(SplitMode.ROWS, files)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, highest))


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_package_that_is_missing_is_named(warehouse: Any, file_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of(warehouse, file_format)
    files = write(table, rows(COLUMNS[file_format], 1))
    monkeypatch.setitem(sys.modules, MODULES[file_format], None)
    with pytest.raises(UnsupportedTableError, match=rf"pip install 'pypaimon-streaming\[{file_format}\]'"):
        reader(table).to_arrow([split(SplitMode.ROWS, files)])


FORKED = """
import io, os, warnings
from pathlib import Path
from pypaimon.streaming.formats.external_formats import local_copy

class Owner:
    pass

warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
owner = Owner()
path = Path(local_copy(io.BytesIO(b"rows"), owner).name)
child = os.fork()
if child == 0:
    del owner
    os._exit(0)
os.waitpid(child, 0)
print(path.read_bytes().decode())
del owner
print(path.exists())
"""


def test_a_copy_for_a_library_outlives_a_forked_process_and_goes_with_its_owner() -> None:
    ran = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=600)
    assert ran.stdout.split("\n") == ["rows", "False", ""], ran.stderr
