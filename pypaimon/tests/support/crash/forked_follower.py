"""A process that forks while the n-th request of a stream is under way: the child reads all rows, as its parent does.

Arguments, several times: a table of the corpus, `Plans` or `Batches`, and the number of the request.
"""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import warnings
from multiprocessing import get_context
from typing import Any

from support.corpus import follower as corpus_follower
from support.corpus.follower import Face, Rows, builder_of, follow
from support.stores.fault_file_io import Call, FaultFileIO

PATIENCE = 60


def be_child(builder: Any, file_io: FaultFileIO, face: Face, wanted: Rows) -> None:
    """Read with the builder that was inherited; if that waits for ever the child is killed, and tells where."""
    faulthandler.register(signal.SIGALRM, chain=True)
    signal.alarm(PATIENCE)
    # A thread of the parent may have held it; it is none of the library's.
    file_io._lock = threading.Lock()
    assert follow(builder, face) == (wanted, 0)


def check(scenario: str, face: Face, number: int) -> None:
    """Fork at one request."""
    wanted, _ = follow(builder_of(scenario), face)
    file_io = FaultFileIO()
    builder = builder_of(scenario, file_io)
    held, go_on = threading.Event(), threading.Event()

    def hold(call: Call) -> Any:
        held.set()
        assert go_on.wait(2 * PATIENCE)
        return call.answer()

    file_io.at(number, hold)
    found: list[tuple[Rows, int]] = []
    thread = threading.Thread(target=lambda: found.append(follow(builder, face)), daemon=True)
    thread.start()
    while thread.is_alive() and not held.is_set():
        # How many requests there are may depend on which come first.
        thread.join(0.01)
    child = get_context("fork").Process(target=be_child, args=(builder, file_io, face, wanted))
    child.start()
    child.join()
    go_on.set()
    thread.join(PATIENCE)
    assert (child.exitcode, found) == (0, [(wanted, 0)])


if __name__ == "__main__":
    # What Python warns of is what is tested here.
    warnings.filterwarnings("ignore", ".*fork.*", DeprecationWarning)
    arguments = iter(sys.argv[1:])
    for scenario in arguments:
        check(scenario, getattr(corpus_follower, next(arguments)), int(next(arguments)))
        print(scenario, flush=True)
