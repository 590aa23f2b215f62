"""Blocking calls on daemon threads: limits in number and time, threads that end, and an exit that nothing holds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import pytest

from pypaimon.streaming.errors import IOTimeoutError, StoreError
from pypaimon.streaming.io import pool_registry
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.local_files import step_by_step
from pypaimon.streaming.io.pool_registry import longest_wait
from support.pyarrow_limits import ends_with_s3_in_flight
from support.stores.request_time import FOR_EVER, hang, let_pass, takes
from support.waits import until

pytestmark = pytest.mark.slow

LONG = 30.0
SHORT = 0.05


@contextmanager
def gate() -> Iterator[threading.Event]:
    """An event that calls wait for; it is set in the end, so that no thread outlives its test."""
    event = threading.Event()
    try:
        yield event
    finally:
        event.set()


def leave(pool: IOPool) -> None:
    """Wait until no thread works for a pool, nor hangs in a call of it."""
    until(lambda: not (pool.threads or pool.hanging))


def test_a_call_runs_on_a_thread_of_the_pool_and_its_outcome_comes_back() -> None:
    pool = IOPool(2, LONG, name="outcome")
    assert pool.threads == 0
    assert pool.run(divmod, 7, 2) == (3, 1)
    assert pool.run(lambda: threading.current_thread().name).startswith("outcome-")
    with pytest.raises(ZeroDivisionError):
        pool.run(divmod, 7, 0)
    pool.close()


def test_as_many_calls_run_as_the_pool_is_large_and_no_more() -> None:
    pool = IOPool(3, LONG)
    barrier = threading.Barrier(3)
    assert sorted(map(pool.result, [pool.submit(barrier.wait, LONG) for _ in range(3)])) == [0, 1, 2]
    with gate() as event:
        futures = [pool.submit(event.wait, LONG) for _ in range(20)]
        assert pool.threads == 3
        event.set()
        assert all(map(pool.result, futures))
    pool.close()


def test_threads_are_used_again_and_leave_a_pool_without_calls() -> None:
    pool = IOPool(8, LONG, name="idle")
    threads = {pool.run(threading.current_thread) for _ in range(5)}
    assert len(threads) <= 2
    leave(pool)
    assert pool.run(len, "again") == 5
    leave(pool)


def test_a_closed_pool_finishes_what_it_was_given_and_takes_nothing_more() -> None:
    pool = IOPool(1, LONG, name="closed")
    with gate() as event:
        futures = [pool.submit(event.wait, LONG) for _ in range(3)]
        pool.close()
        pool.close()
        with pytest.raises(RuntimeError, match="closed"):
            pool.submit(len, "")
        event.set()
        assert all(map(pool.result, futures))
    leave(pool)


def test_a_call_that_hangs_is_given_up_and_its_thread_replaced() -> None:
    pool = IOPool(1, LONG, name="hang")
    with gate() as event:
        with pytest.raises(IOTimeoutError, match="30 s") as raised:
            pool.run(hang, event)
        assert raised.value.retriable
        assert (pool.abandoned, pool.hanging) == (1, 1)
        assert pool.run(len, "next") == 4
    leave(pool)
    assert (pool.abandoned, pool.hanging) == (1, 0)


def test_the_time_limit_counts_from_when_a_call_runs_not_while_it_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: seconds)
    pool = IOPool(1, 10.0)

    def call(event: threading.Event) -> None:
        nonlocal seconds
        event.wait(LONG)
        seconds += 6
        pool.give_up_overdue()

    with gate() as event:
        futures = [pool.submit(call, event) for _ in range(6)]
        event.set()
        assert [pool.result(future) for future in futures] == [None] * 6
    assert (pool.abandoned, seconds) == (0, 36)
    pool.close()


@pytest.mark.parametrize("marked", [False, True])
def test_each_request_of_a_call_has_the_time_limit_for_itself(marked: bool) -> None:
    def several(seconds: float) -> int:
        for _ in range(4):
            with one_request():
                takes(seconds)
        return 4

    pool = IOPool(1, LONG, marked=marked)
    assert pool.run(several, LONG * 0.6) == 4
    with pytest.raises(IOTimeoutError):
        pool.run(several, LONG)
    pool.close()


def test_a_request_after_a_marked_one_has_the_time_limit_for_itself() -> None:
    pool = IOPool(1, LONG)

    def close(seconds: float) -> None:
        with one_request():
            takes(LONG * 0.6)
        takes(seconds)

    pool.run(close, LONG * 0.6)
    with pytest.raises(IOTimeoutError):
        pool.run(close, LONG)
    pool.close()


def test_where_requests_are_marked_nothing_else_is_limited() -> None:
    pool = IOPool(1, LONG, marked=True)

    def several(event: threading.Event) -> None:
        takes(FOR_EVER)
        with one_request():
            pass
        takes(FOR_EVER)
        reached.append(True)
        with one_request():
            hang(event)

    reached: list[bool] = []
    with gate() as event, pytest.raises(IOTimeoutError, match="30 s"):
        pool.run(several, event)
    assert reached == [True]
    pool.close()


def test_decoding_is_not_limited_but_what_hangs_before_or_after_it_is() -> None:
    pool = IOPool(1, LONG, marked=True)

    def compute(_: object = None) -> str:
        for _ in range(5):
            began = time.thread_time()
            while time.thread_time() == began:
                pass
            takes(LONG * 0.6)
        return "decoded"

    def decode(event: threading.Event | None) -> str:
        with one_request(decodes=True):
            decoded = compute()
            if event is not None:
                event.wait(LONG)
        return decoded

    assert pool.run(decode, None) == "decoded"
    assert pool.run(lambda: list(step_by_step(map(compute, range(2))))) == ["decoded"] * 2
    pool.close()
    pool = IOPool(1, SHORT, marked=True)
    with gate() as event, pytest.raises(IOTimeoutError):
        pool.run(decode, event)
    pool.close()


def test_what_is_marked_on_a_thread_of_no_pool_is_just_done() -> None:
    with one_request(), one_request(decodes=True):
        assert True


def test_a_waiting_caller_gives_up_what_others_left_hanging() -> None:
    """A call whose submitter went away would else hold the only thread for ever."""
    pool = IOPool(1, LONG)
    begun = threading.Event()

    def hang_unseen(event: threading.Event) -> None:
        let_pass(FOR_EVER)
        begun.set()
        event.wait()

    with gate() as event:
        left = pool.submit(hang_unseen, event)
        assert begun.wait(LONG)
        assert pool.run(len, "mine") == 4
        assert isinstance(left.exception(0), IOTimeoutError)
    pool.close()


def test_a_call_without_a_time_limit_does_not_count_as_hanging(monkeypatch: pytest.MonkeyPatch) -> None:
    limited, unlimited = IOPool(1, LONG), IOPool(1, float("inf"))
    monkeypatch.setattr(pool_registry, "pools", WeakKeyDictionary({limited: None, unlimited: None}))
    begun = threading.Barrier(2)

    def waits(event: threading.Event) -> bool:
        begun.wait(LONG)
        return event.wait()

    with gate() as event:
        planning = unlimited.submit(waits, event)
        begun.wait(LONG)
        let_pass(9)
        assert longest_wait() == 0
        asking = limited.submit(waits, event)
        begun.wait(LONG)
        let_pass(7)
        assert longest_wait() >= 7
    assert unlimited.result(planning) and limited.result(asking)


def test_waits_are_logged_while_another_thread_makes_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_registry, "pools", WeakKeyDictionary())
    made: list[IOPool] = []
    maker = threading.Thread(target=lambda: made.extend(IOPool(1, LONG) for _ in range(1000)))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        maker.start()
        while maker.is_alive():
            assert longest_wait() == 0
    finally:
        maker.join()
        sys.setswitchinterval(interval)
    assert len(made) == 1000


def test_while_too_many_calls_hang_others_fail_at_once_and_later_ones_succeed() -> None:
    pool = IOPool(1, LONG, name="few", max_abandoned=2)
    with gate() as event, gate() as begin:
        hanging = [pool.submit(lambda: begin.wait() and hang(event)) for _ in range(2)]
        waiting = pool.submit(len, "waits for its turn")
        begin.set()
        with pytest.raises(StoreError, match="2 requests") as raised:
            pool.result(waiting)
        assert not isinstance(raised.value, IOTimeoutError)
        assert all(isinstance(future.exception(0), IOTimeoutError) for future in hanging)
        with pytest.raises(StoreError, match="2 requests"):
            pool.run(len, "")
    leave(pool)
    assert pool.run(len, "back") == 4
    leave(pool)


def test_the_call_s_own_timeout_error_is_not_taken_for_the_pool_s() -> None:
    pool = IOPool(1, LONG)

    def fail() -> None:
        raise TimeoutError("the socket's own")

    with pytest.raises(TimeoutError, match="own") as raised:
        pool.run(fail)
    assert not isinstance(raised.value, IOTimeoutError)
    assert pool.abandoned == 0
    pool.close()


def test_a_call_knows_that_it_was_given_up() -> None:
    pool = IOPool(2, LONG)
    seen: list[bool] = []

    def slow(event: threading.Event) -> None:
        seen.append(pool.given_up)
        hang(event)
        seen.append(pool.given_up)
        done.set()

    done = threading.Event()
    with gate() as event, pytest.raises(IOTimeoutError):
        pool.run(slow, event)
    assert done.wait(LONG)
    assert seen == [False, True]
    pool.close()


def test_a_call_that_waits_for_its_turn_can_be_cancelled() -> None:
    pool = IOPool(1, LONG)
    with gate() as event:
        first, second = pool.submit(event.wait, LONG), pool.submit(len, "never")
        assert second.cancel()
        with pytest.raises(CancelledError):
            second.result(0)
        event.set()
        assert pool.result(first)
    assert pool.abandoned == 0
    pool.close()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A program that a shell starts in the background ignores Ctrl-C, and so would its tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_interrupts_a_caller_that_waits() -> None:
    pool = IOPool(1, LONG)
    with gate() as event:

        def interrupt() -> None:
            os.kill(os.getpid(), signal.SIGINT)
            event.wait(LONG)

        with pytest.raises(KeyboardInterrupt):
            pool.run(interrupt)
    assert pool.run(len, "usable") == 6
    pool.close()


def run_script(text: str) -> str:
    """Run a script of its own; one that does not end fails."""
    return run(text).stdout.strip()


def run(text: str, *descriptors: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True, pass_fds=descriptors)


def run_with_s3(text: str) -> subprocess.CompletedProcess[str]:
    """Run a script with a store that never answers. Its connections stay open after the script has ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return run(PRELUDE + S3.format(fileno=server.fileno()) + text, server.fileno())


PRELUDE = """
import os, socket, threading
from pypaimon.streaming.io.io_pool import IOPool
from pypaimon.streaming.errors import IOTimeoutError
from pypaimon.streaming.io.workers import _spares
pool = IOPool(1, timeout=60)
never = threading.Event()
"""
S3 = """
import pyarrow.fs
server = socket.socket(fileno={fileno})
port = server.getsockname()[1]
settings = dict(access_key="a", secret_key="b", region="r", request_timeout=600, connect_timeout=600)
store = pyarrow.fs.S3FileSystem(endpoint_override=f"http://127.0.0.1:{{port}}", **settings)
"""
GIVE_UP = """
pool = IOPool(1, timeout=0.1)
try:
    pool.run({call})
except IOTimeoutError:
    print("given up")
"""


def test_a_call_that_hangs_does_not_hold_the_interpreter() -> None:
    assert run_script(PRELUDE + GIVE_UP.format(call="never.wait")) == "given up"


@ends_with_s3_in_flight
def test_a_request_that_hangs_in_pyarrow_s_s3_does_not_hold_the_interpreter() -> None:
    call = "store.open_input_file, 'bucket/key'"
    assert run_with_s3(GIVE_UP.format(call=call)).stdout == "given up\n"


@ends_with_s3_in_flight
def test_a_request_that_nobody_waits_for_any_more_does_not_hold_the_interpreter() -> None:
    call = "pool.submit(store.open_input_file, 'bucket/key')"
    script = f"import select\n{call}\nselect.select([server], [], [])\nprint('in flight')"
    assert run_with_s3(script).stdout == "in flight\n"


@ends_with_s3_in_flight
def test_a_request_that_hangs_in_a_hook_at_exit_does_not_hold_the_interpreter() -> None:
    """A hook that is registered while hooks run is not called any more."""
    call = GIVE_UP.format(call="store.open_input_file, 'bucket/key'").replace("\n", "\n    ")
    hook = f"def at_exit():\n    {call}\nimport atexit\npool.run(len, '')\natexit.register(at_exit)\n"
    assert run_with_s3(hook.replace("pool = IOPool", "global pool; pool = IOPool")).stdout == "given up\n"


def test_where_all_that_hung_has_come_back_pyarrow_ends_its_s3_client() -> None:
    """Else it warns of a crash at exit, and some do crash."""
    script = GIVE_UP.format(call="never.wait") + "never.set()\nwhile pool.hanging:\n    pass\n"
    ran = run_with_s3(script)
    assert (ran.stdout, ran.stderr) == ("given up\n", "")


def test_what_is_answered_at_exit_is_waited_for_before_pyarrow_ends_its_s3_client() -> None:
    """The process may crash where it does not end it."""
    script = """
import sys, time, traceback
pyarrow.fs.ensure_s3_finalized = lambda: print("ended")
main, begun = threading.main_thread().ident, threading.Event()

def until_the_exit_waits():
    begun.set()
    while not any(frame.f_code.co_name == "_at_exit" for frame, _ in traceback.walk_stack(sys._current_frames()[main])):
        time.sleep(0.001)

pool.submit(until_the_exit_waits)
begun.wait()
"""
    assert run_with_s3(script).stdout == "ended\n"


def test_an_exit_while_other_threads_read_files_waits_for_the_reads_and_starts_no_new_ones() -> None:
    """A thread that ends inside of Arrow aborts the process."""
    script = """
import io, time, pyarrow as pa, pyarrow.parquet as pq

output, reading = pa.BufferOutputStream(), threading.Event()
pq.write_table(pa.table({"id": [1]}), output)

class File(io.BytesIO):
    def read(self, *args):
        reading.set()
        time.sleep(0.005)
        return super().read(*args)

def read(file):
    for _ in pq.ParquetFile(file).iter_batches(use_threads=False):
        pass

def read_on():
    while True:
        pool.run(read, File(output.getvalue().to_pybytes()))

pool = IOPool(8, 60)
for _ in range(8):
    threading.Thread(target=read_on, daemon=True).start()
reading.wait()
print("exit")
"""
    ended = run(PRELUDE + script)
    assert (ended.stdout, ended.stderr) == ("exit\n", "")


SPARE = """
pool.run(len, '')
while not _spares:
    pass
"""


@pytest.mark.parametrize("before", ["pool.run(len, '')", "pool.submit(never.wait)", SPARE])
def test_a_pool_works_in_a_forked_process(before: str) -> None:
    script = f"""
{PRELUDE}
{before}
child = os.fork()
if child == 0:
    os._exit(pool.run(len, "seven!!"))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_script(script) == "7"


def test_what_hangs_in_the_parent_does_not_count_in_a_forked_process() -> None:
    script = f"""
{PRELUDE}
from pypaimon.streaming.io.io_requests import Hanging
hanging = Hanging(most=1)
pool, other = IOPool(1, timeout=0.1, hanging=hanging), IOPool(1, timeout=60, hanging=hanging)
try:
    pool.run(never.wait)
except IOTimeoutError:
    print("given up")
child = os.fork()
if child == 0:
    os._exit(other.run(len, "seven!!"))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_script(script).split("\n") == ["given up", "7"]
