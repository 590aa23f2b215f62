"""A program that is forked behaves as one that the interpreter starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from support import programs

pytestmark = pytest.mark.slow

_WORDS = {
    "its place": ("-c", "import os, sys; print(sys.argv, sys.path, os.getcwd(), *sorted(os.environ))", "a", "-b"),
    "its descriptors": ("-c", "import os; print(*sorted(os.listdir('/proc/self/fd')))"),
    "its streams": ("-u", "-c", "import sys; print(sys.stdin.read(), sys.stdin.encoding, sys.stdout.write_through)"),
    "its signals": ("-c", "import signal; print(*map(signal.getsignal, (2, 13, 15, 17)))"),
    "an exit": ("-c", "import atexit, sys; atexit.register(print, 'done'); sys.exit('bye')"),
    "a thread": ("-c", "import threading; threading.Timer(0.1, print, ['done']).start()"),
    "an error": ("-c", "def fail():\n  raise ValueError(1)\nfail()"),
    "an interrupt": ("-c", "raise KeyboardInterrupt"),
    "a signal": ("-c", "import os; os.kill(os.getpid(), 15)"),
    "a warning": ("-W", "error", "-c", "import warnings; warnings.warn('x')"),
    "a module": ("-m", "json.tool", "--help"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="forks on Linux only")
@pytest.mark.parametrize("words", _WORDS.values(), ids=_WORDS)
def test_a_fork_is_as_the_interpreter_starts_it(words: tuple[str, ...], tmp_path: Any) -> None:
    place: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "TZ": "Asia/Tokyo"}}
    command = [sys.executable, *words]
    forked = programs.run(command, input="ü\n", capture_output=True, text=True, **place)
    usual = subprocess.run(command, input="ü\n", capture_output=True, text=True, check=False, **place)
    assert (forked.returncode, forked.stdout, forked.stderr) == (usual.returncode, usual.stdout, usual.stderr)


def test_a_fork_is_a_child_with_a_process_id_of_its_own() -> None:
    reader, writer = os.pipe()
    text = f"import os, time; os.write({writer}, f'{{os.getppid()}} {{os.getpid()}}'.encode()); time.sleep(600)"
    with programs.Popen([sys.executable, "-c", text], pass_fds=[writer]) as program:
        assert os.read(reader, 100).decode() == f"{os.getpid()} {program.pid}"
        program.send_signal(signal.SIGKILL)
        assert program.wait() == -signal.SIGKILL
    os.close(reader)
    os.close(writer)


def test_a_program_that_a_fork_cannot_be_is_started() -> None:
    text = "import sys; print(sys.flags.optimize, sys.flags.hash_randomization)"
    for options, environment in ((["-O"], os.environ), ([], {**os.environ, "PYTHONHASHSEED": "0"})):
        command = [sys.executable, *options, "-c", text]
        shown = programs.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert shown == subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
