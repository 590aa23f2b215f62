"""The demo as a newcomer runs it: as a program of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pypaimon.streaming import MaintenancePolicy, demo, stream_write_builder
from pypaimon.streaming.commit import session

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-W", "error", "-m", "pypaimon.streaming.demo")
ROW = re.compile(r"snapshot +(\d+)  (\w+) +([+-][IUD])  ")


def test_shows_changes_of_every_kind_and_an_interrupt_ends_it_cleanly() -> None:
    command = [*COMMAND, "--seconds", "3600", "--interval", "0.1"]
    rows: list[tuple[str, str, str]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            rows += ROW.findall(line)
            if len({kind for _, _, kind in rows}) == 4:
                break
        demo.send_signal(signal.SIGINT)
        output, errors = demo.communicate(timeout=600)
    rows += ROW.findall(output)
    assert (demo.returncode, errors) == (0, "")
    assert {kind for _, _, kind in rows} == {"+I", "-U", "+U", "-D"}
    assert {plan for _, plan, _ in rows} == {"full", "changelog"}
    snapshots = [int(snapshot) for snapshot, _, _ in rows]
    assert sorted(set(snapshots)) == list(range(snapshots[0], snapshots[-1] + 1))
    assert snapshots == sorted(snapshots)
    assert "lag: 0 snapshots" in output
    assert re.search(r"\d+ changes; the \d+ orders that they leave equal the table", output)


def test_the_files_of_its_table_stay_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ROUNDS", 5)
    # The consumer of a writer is up to this many snapshots behind, and keeps them.
    monkeypatch.setattr(session, "MOST_AHEAD", 8)
    monkeypatch.setattr(session, "MOST_SNAPSHOTS", 8)
    monkeypatch.setattr(demo, "KEPT", MaintenancePolicy(min_snapshots=5, max_snapshots=5))
    table = demo.create_table(str(tmp_path))
    home = tmp_path / "demo.db" / "orders"
    highest = []
    with stream_write_builder(table).open_sync() as opened:
        writer = demo.Writer(table, opened, interval=0)
        thread = threading.Thread(target=writer.run)
        thread.start()
        for goal in (50, 90):
            most = latest = 0
            while latest < goal and thread.is_alive():
                latest = int((home / "snapshot" / "LATEST").read_text() or 0)
                if latest > goal - 40:
                    most = max(most, sum(each.is_file() for each in home.rglob("*")))
                time.sleep(0.005)
            highest.append(most)
        writer.stop()
        thread.join()
    assert 0 < highest[1] <= 1.3 * highest[0], highest
