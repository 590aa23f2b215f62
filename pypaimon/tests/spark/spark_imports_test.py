"""What the processes that Spark starts import: none pays for what it does not need."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from support.spark.queries import options
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

HEAVY = (
    "asyncio",
    "importlib.metadata",
    "pandas",
    "polars",
    "pyarrow.dataset",
    "pypaimon.api.rest_api",
    "pypaimon.table.table",
    "pypaimon.write.file_store_write",
    "requests",
)
"""What a stream, or a batch read, of a table in a file system needs nothing of."""

AROUND = """
import json, sys
import pyspark.sql.worker.plan_data_source_read
from pyspark.cloudpickle import dumps, loads
from pyspark.sql.datasource import CaseInsensitiveDict
from pypaimon.spark.source import PaimonDataSource
source = PaimonDataSource(CaseInsensitiveDict(json.loads(sys.argv[1])))
{code}
print(json.dumps(sorted(sys.modules)))
"""


PLANNED = {
    "batch": "tasks = source.reader(source.schema()).partitions()",
    "stream": """
reader = source.streamReader(source.schema())
begin = reader.initialOffset()
tasks = reader.partitions(begin, reader.latestOffset(begin, reader.getDefaultReadLimit()))
""",
}


def run(code: str, *arguments: str) -> list[str]:
    """What a new process prints that runs some code, line by line."""
    shown = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.splitlines()


def imported(table: Table, code: str, **more: str) -> set[str]:
    """The modules in a new process behind some code, which has a source of the table as `source`."""
    return set(json.loads(run(AROUND.format(code=code), json.dumps(options(table) | more))[-1]))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """A table with rows, in a file system."""
    made = Table(tmp_path_factory.mktemp("warehouse"))
    made.commit([1, 2])
    return made


def test_the_process_that_hands_out_readers_of_a_stream_imports_nothing_of_pypaimon(table: Table) -> None:
    """Spark makes a reader there, and pickles its method; it asks another process what to read."""
    found = imported(table, "dumps(source.streamReader(pyspark.sql.types.StructType()).read)")
    theirs = {name for name in found if name.startswith("pypaimon.")}
    assert {name for name in theirs if not name.startswith(("pypaimon.spark", "pypaimon.streaming"))} == set()
    assert not {*HEAVY} & found


def test_the_process_that_reports_the_columns_imports_no_plans(table: Table) -> None:
    found = imported(table, "assert len(source.schema()) == 2")
    plans = {"pypaimon.streaming.planning", "pypaimon.streaming.metadata.manifests", "pypaimon.streaming.reading.read"}
    assert not {*HEAVY, *plans} & found


@pytest.mark.parametrize("kind", PLANNED)
def test_no_garbage_is_looked_for_in_what_a_planning_process_imported(table: Table, kind: str) -> None:
    code = f"import gc; assert not gc.get_freeze_count()\n{PLANNED[kind]}\nassert gc.get_freeze_count() > 10_000"
    imported(table, code)


def test_the_garbage_of_a_users_program_is_collected() -> None:
    assert run("import gc, pypaimon.spark.lean_imports; print(gc.get_freeze_count())") == ["0"]


def test_names_that_planning_does_not_import_are_there_on_request(table: Table) -> None:
    code = f"""
import pyarrow as pa
{PLANNED["stream"]}
assert not {{"pandas", "requests"}} & {{*sys.modules}}
assert pa.table({{"a": [1, None]}}).to_pandas()["a"].isna().tolist() == [False, True]
assert pa.array(sys.modules["pandas"].Series([1.0, float("nan")])).null_count == 1
from pypaimon.common import uri_reader
assert uri_reader.requests.get is sys.modules["requests"].get
"""
    assert {"pandas", "requests"} <= imported(table, code)


@pytest.mark.parametrize("kind", PLANNED)
def test_planning_and_a_task_import_nothing_of_each_other_and_no_catalogs(
    table: Table, kind: str, tmp_path: Path
) -> None:
    """A task is in a process that gets the pickled method and one task, as Spark's workers do."""
    pickled = tmp_path / "task"
    reader = "reader = source.reader(source.schema())\n" if kind == "batch" else ""
    write = f"open({str(pickled)!r}, 'wb').write(dumps((reader.read, tasks[0])))"
    found = imported(table, f"{reader}{PLANNED[kind]}\nassert tasks\n{write}")
    assert not {*HEAVY, "pypaimon.streaming.reading.read", "pypaimon.streaming.merge"} & found
    code = f"""
import pickle, sys, json
import pyspark.sql.worker.plan_data_source_read
read, task = pickle.loads(open({str(pickled)!r}, "rb").read())
print(sum(batch.num_rows for batch in read(task)))
print(json.dumps(sorted(sys.modules)))
"""
    rows, modules = run(code)
    assert rows == "2"
    assert not {*HEAVY, "pypaimon.streaming.planning", "pypaimon.streaming.scanning.driver"} & set(json.loads(modules))


def test_each_process_of_a_read_asks_once_for_the_newest_schema(table: Table) -> None:
    """One listing and one file: the handle of the table and what reads it know the same schema."""
    code = """
asked = []
warehouse = source.options["warehouse"]
def note(event, arguments):
    path = str(arguments[0]) if event in ("open", "os.listdir", "os.scandir") else ""
    if path.startswith(warehouse) and "/schema" in path:
        asked.append(path)
sys.addaudithook(note)
reader = source.reader(source.schema())
counts = [len(asked)]
tasks = reader.partitions()
counts.append(len(asked))
assert sum(batch.num_rows for batch in reader.read(tasks[0])) == 2
counts.append(len(asked))
print(counts)
"""
    assert run(AROUND.format(code=code), json.dumps(options(table)))[0] == "[2, 4, 6]"
