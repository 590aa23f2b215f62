"""A query killed in the middle of a later batch, restarted after more commits: every row once.

The first batch is that of `spark_sink_kill_test.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from support.repository import program
from support.spark.queries import Collected, frame, options
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.spark, pytest.mark.soak]

SCRIPT = "support.spark.killed_query"
TIMEOUT = 600


def kill_in_batch(table: Table, directory: Path, batch: int, **more: str) -> None:
    """Run a query in other processes until it is in the middle of a batch, then kill them all with signal 9."""
    output = directory / "output"
    output.mkdir(parents=True, exist_ok=True)
    settings = {
        "session": str(directory / "session"),
        "output": str(output),
        "hold_in_batch": batch,
        "options": {**options(table), **more},
        "checkpoint": str(directory / "checkpoint"),
    }
    command = program(SCRIPT, json.dumps(settings))
    process = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    timer = threading.Timer(TIMEOUT, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    try:
        assert "holding\n" in iter(process.stdout.readline, "")
    finally:
        timer.cancel()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def written(directory: Path) -> dict[int, list[Any]]:
    files = (directory / "output").glob("batch-*.json")
    return {int(file.stem.removeprefix("batch-")): json.loads(file.read_text()) for file in files}


@pytest.mark.nightly
def test_a_later_batch_that_cut_a_snapshot_is_the_same_without_its_limit(spark: Any, tmp_path: Path) -> None:
    table = Table(tmp_path / "warehouse", primary_key=True, changelog_producer="input")
    for number in range(4):
        table.commit([("+I", key, "x") for key in range(number * 10, number * 10 + 10)])
    kill_in_batch(table, tmp_path / "killed", 2, start="earliest", maxFilesPerTrigger="1")
    before = written(tmp_path / "killed")
    assert sorted(before) == [0, 1]
    table.commit([("-D", 0, "x"), ("+I", 40, "x")])
    collected = Collected(tmp_path / "killed" / "checkpoint")
    collected.run(frame(spark, table, columns="k"))
    rows = [tuple(row[:2]) for batch in before.values() for row in batch]
    rows += collected.rows
    assert sorted(rows) == sorted([*(("+I", key) for key in range(41)), ("-D", 0)])
    assert len(collected.batches[2]) < 10
