"""The demo as a newcomer runs it: as a program of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import pytest

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
