"""Daemon threads that the interpreter's exit ends: one that it kills inside of C++ code aborts the process."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pypaimon.streaming
import support

pytestmark = pytest.mark.slow

# The thread is inside of Arrow, which calls Python, whenever the exit comes; `read_once` returns soon.
READING = """
import io, os, threading, time, pyarrow as pa, pyarrow.parquet as pq
from pypaimon.streaming.concurrency.background_threads import BackgroundThread, spawn_detached

output, reading, stopped = pa.BufferOutputStream(), threading.Event(), threading.Event()
pq.write_table(pa.table({"id": [1]}), output)

class File(io.BytesIO):
    def read(self, *args):
        reading.set()
        time.sleep(0.005)
        return super().read(*args)

def read_once():
    for _ in pq.ParquetFile(File(output.getvalue().to_pybytes())).iter_batches(use_threads=False):
        pass

def read_on():
    while not stopped.is_set():
        read_once()
    os.write(1, b"ended\\n")
"""


def ended(script: str) -> tuple[str, str, int]:
    command = [sys.executable, "-c", READING + script]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    return ran.stdout, ran.stderr, ran.returncode


def test_the_exit_stops_a_thread_and_waits_for_it() -> None:
    assert ended(
        """
for _ in range(8):
    BackgroundThread(read_on, "reading", stopped.set).start()
reading.wait()
"""
    ) == ("ended\n" * 8, "", 0)


@pytest.mark.parametrize(
    "finalizer", ["weakref.finalize(owner, spawn_detached, read_twenty)", "spawn_detached(read_twenty)"]
)
def test_the_exit_waits_for_the_calls_of_finalizers(finalizer: str) -> None:
    """Those that are made by a finalizer which runs after the threads have ended, too."""
    assert ended(
        f"""
import weakref

class Owner: pass

def read_twenty():
    for _ in range(20):
        read_once()
    os.write(1, b"ended\\n")

owner = Owner()
weakref.finalize(Owner(), len, ())
BackgroundThread(int, "hook", int).start()
{finalizer}
"""
    ) == ("ended\n", "", 0)


def test_the_exit_does_not_wait_for_a_thread_whose_request_hangs() -> None:
    """Otherwise it would print that the time is over."""
    assert ended(
        """
from pypaimon.streaming.concurrency import background_threads

background_threads._LAST_SECONDS = 600
thread = BackgroundThread(threading.Event().wait, "hanging", int)
thread.is_awaited = False
thread.start()
"""
    ) == ("", "", 0)


def test_the_exit_does_not_wait_for_a_save_of_progress_that_hangs(tmp_path: Path) -> None:
    """Not even as long as a request may take, which is an hour here."""
    assert ended(
        f"""
import sys
from pathlib import Path

sys.path.insert(0, {str(Path(support.__file__).parents[1])!r})
from support.stores.fault_file_io import FaultFileIO
from support.tables.streamed_table import Table

def hang(call):
    if "/consumer/" in call.path and is_following.is_set():
        saving.set()
        threading.Event().wait()
    return call.answer()

is_following, saving, files = threading.Event(), threading.Event(), FaultFileIO()
files.wherever(hang)
table = Table(Path({str(tmp_path)!r})).commit_each([1])
stream = table.builder(files).with_consumer_id("c").with_io_timeout(3600).open_sync()
next(stream)
is_following.set()
threading.Thread(target=next, args=(stream,), daemon=True).start()
assert saving.wait(600)
"""
    ) == ("", "", 0)


def test_a_stop_that_fails_does_not_keep_the_others_from_ending() -> None:
    assert ended(
        """
def fail():
    raise ValueError("stop")

once = threading.Event()
BackgroundThread(once.wait, "failing", fail).start()
BackgroundThread(read_on, "reading", lambda: (stopped.set(), once.set())).start()
reading.wait()
"""
    ) == ("ended\n", "", 0)


def test_finalizers_find_the_threads_ended() -> None:
    """One of them closes the database that the thread of a live table uses."""
    assert ended(
        """
import weakref

class Owner: pass

BackgroundThread(read_on, "reading", stopped.set).start()
reading.wait()
owner = Owner()
weakref.finalize(owner, os.write, 1, b"finalized\\n")
"""
    ) == ("ended\nfinalized\n", "", 0)


def test_a_finalizer_on_a_thread_that_the_exit_waits_for_does_not_wait_for_it() -> None:
    assert ended(
        """
from pypaimon.streaming.concurrency import background_threads

background_threads._LAST_SECONDS = 600

def run():
    stopped.wait()
    spawn_detached(int)

BackgroundThread(run, "ending", stopped.set).start()
"""
    ) == ("", "", 0)


def test_a_forked_process_waits_for_no_thread_of_its_parent() -> None:
    assert ended(
        """
from pypaimon.streaming.concurrency import background_threads

background_threads._LAST_SECONDS = 600
once = threading.Event()
BackgroundThread(once.wait, "waiting", once.set).start()
spawn_detached(once.wait)
child = os.fork()
if child == 0:
    once.set = int
    background_threads._at_exit()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    ) == ("7\n", "", 0)


def test_every_thread_of_the_library_is_one_that_the_exit_ends() -> None:
    """The command line has its own exit, which does not finalize the interpreter while its threads run."""
    root = Path(pypaimon.streaming.__file__).parent
    plain = [
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if "cli" not in path.relative_to(root).parts and path.name != "background_threads.py"
        for text in [path.read_text()]
        if ".Thread" in text or ".start_new_thread" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("Thread", "start_new_thread")
    ]
    assert not plain
