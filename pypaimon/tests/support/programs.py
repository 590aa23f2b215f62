"""Python programs that tests start, as forks of a process that has imported the library (`program_server`).

`Popen` and `run` do what those of `subprocess` do. The interpreter itself starts where a program has options or an
environment that a fork cannot have, and on systems other than Linux.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import struct
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.program_server import Command, Request, send
from support.repository import program

LIBRARY = ("pypaimon.catalog.catalog_factory", "pypaimon.streaming.read_builder", "pypaimon.streaming.cli.app")
"""What most programs import."""
_READ_ONCE = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "ARROW_", "OMP_")
"""How variables begin that are read as the interpreter or a library starts."""
_ADOPT = 36
"""PR_SET_CHILD_SUBREAPER of Linux: processes whose parent has ended become children of this one."""


class ProgramServer:
    """A process that forks programs. It ends with this one.

    Attributes:
        name: Its address, for `program_server.send`.
        variables: What a program's variables of this kind must be.
    """

    def __init__(self, modules: Sequence[str] = LIBRARY, **variables: str) -> None:
        self.name = f"pypaimon-streaming-tests-{uuid.uuid4()}"
        self.owner = os.getpid()
        environment = {**os.environ, **variables}
        self.variables = _read_once(environment)
        self._adopting = threading.Lock()
        self._process = subprocess.Popen(
            (sys.executable, str(Path(__file__).with_name("program_server.py")), self.name, *modules),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        atexit.register(self.close)

    def start(self, request: Request, descriptors: list[int]) -> int:
        """Start a program as a child of this process, and return its process id.

        Raises:
            OSError: The request is too long, or the server has ended.
        """
        with self._adopting, _adopting(), send(self.name, request, descriptors) as connection:
            (pid,) = struct.unpack("i", connection.recv(4))
        return int(pid)

    def close(self) -> None:
        """End the server. Its programs keep running."""
        if os.getpid() == self.owner:
            self._process.communicate()


@contextmanager
def _adopting() -> Iterator[None]:
    prctl = ctypes.CDLL(None).prctl
    prctl(_ADOPT, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_ADOPT, 0, 0, 0, 0)


class Popen(subprocess.Popen[Any]):
    """A Python program of `subprocess.Popen`'s arguments: the command begins with `sys.executable`."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *more: Any) -> None:
        pass_fds, cwd, env, _, _, _, *pipes = more[:12]
        _, gid, gids, uid, umask, is_leader, *group = more[12:]
        words = [os.fspath(each) for each in args]
        environment = dict(os.environ if env is None else env)
        usable = (
            sys.platform == "linux"
            and words[0] == sys.executable
            and executable in (None, sys.executable)
            and Command.parsed(words[1:]) is not None
            and (preexec_fn, gid, gids, uid, umask) == (None, None, None, None, -1)
            and all(each == -1 for each in group)
            and _read_once(environment) == _server().variables
        )
        if not usable:
            super()._execute_child(args, executable, preexec_fn, close_fds, *more)  # type: ignore[misc]
            return
        read, _, _, written, _, errors = pipes
        standard = [number if each == -1 else each for number, each in enumerate((read, written, errors))]
        request = Request(words[1:], environment, os.fspath(cwd or os.getcwd()), [0, 1, 2, *pass_fds], bool(is_leader))
        try:
            self.pid = _server().start(request, [*standard, *pass_fds])
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def run(
    command: Sequence[Any],
    *,
    input: Any = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **more: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` with `Popen`."""
    if input is not None:
        more["stdin"] = subprocess.PIPE
    if capture_output:
        more["stdout"] = more["stderr"] = subprocess.PIPE
    with Popen(command, **more) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class JsonProgram:
    """A module of `support` run as a program that answers each line of JSON with one, and must end well."""

    def __init__(self, module: str, *arguments: str) -> None:
        command = program(module, *arguments)
        self._process = Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> JsonProgram:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            assert self._process.stdin
            self._process.stdin.close()
        assert self._process.returncode == 0


def _read_once(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that a fork cannot change. The path of modules can be."""
    return {key: value for key, value in environment.items() if key.startswith(_READ_ONCE) and key != "PYTHONPATH"}


_servers: list[ProgramServer] = []


def _server() -> ProgramServer:
    """The server of this process; a fork of it has one of its own."""
    if not _servers or _servers[-1].owner != os.getpid():
        _servers.append(ProgramServer())
    return _servers[-1]
