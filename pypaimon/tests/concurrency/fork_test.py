"""Processes that are forked while their parent reads: nothing in them waits for a thread that is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.repository import program
from support.tables.streamed_table import Table

pytestmark = pytest.mark.slow

HELD = """
import os, sys, threading, warnings
from cachetools import LRUCache
from pypaimon.streaming.concurrency.forking import cache_lock

warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
cache = LRUCache(4)
cache["a"] = 1
lock = cache_lock(cache)
holds, forked = threading.Event(), threading.Event()

def hold():
    with lock.held:
        holds.set()
        forked.wait()

def entries_in_child():
    child = os.fork()
    if child == 0:
        with lock.held:
            os._exit(len(cache))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print(entries_in_child())
with lock.held:
    print(entries_in_child())
threading.Thread(target=hold, daemon=True).start()
holds.wait()
print(entries_in_child(), len(cache))
forked.set()
"""

WOKEN = """
import asyncio, os, warnings
from pypaimon.streaming.concurrency.clock import Clock, Sleeper

warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
woken = []

class Loop(asyncio.SelectorEventLoop):
    def call_soon_threadsafe(self, *call, **context):
        woken.append(call)
        return super().call_soon_threadsafe(*call, **context)

async def main():
    sleeper = Sleeper(Clock())
    waiting = asyncio.ensure_future(sleeper.pause_async(3600, lambda: bool(woken)))
    await asyncio.sleep(0)
    child = os.fork()
    if child == 0:
        sleeper.wake()
        os._exit(len(woken))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    sleeper.wake()
    await waiting
    print(len(woken))

loop = Loop()
loop.run_until_complete(main())
loop.close()
"""


def test_a_forked_process_reads_with_what_it_inherited_and_is_refused_its_parent_s_streams(tmp_path: Path) -> None:
    Table(tmp_path / "w").commit_each(range(1, 5))
    command = program("support.crash.forked_reader", str(tmp_path / "w"), options=("-W", "error"))
    ran = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert (ran.stdout, ran.returncode) == ("step\nsave\ndata\n", 0), ran.stderr


def test_a_cache_that_another_thread_was_changing_is_empty_in_a_forked_process() -> None:
    ran = subprocess.run([sys.executable, "-c", HELD], capture_output=True, text=True, timeout=600)
    assert ran.stdout.split("\n") == ["1", "1", "0 1", ""], ran.stderr


def test_a_forked_process_does_not_wake_the_event_loop_of_its_parent() -> None:
    """A loop is woken through a socket that both have open."""
    ran = subprocess.run([sys.executable, "-c", WOKEN], capture_output=True, text=True, timeout=600)
    assert ran.stdout.split() == ["0", "1"], ran.stderr
