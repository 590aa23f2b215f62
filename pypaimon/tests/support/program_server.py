"""Starts Python programs as forks of a process that has imported what they use, which takes a third of the time.

A program is a process of its own, with the arguments, environment, directory and descriptors that it was given. It
ends as the interpreter ends. What it imports was imported before, without its options for warnings.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import io
import json
import linecache
import os
import runpy
import select
import signal
import socket
import struct
import sys
import time
import types
import warnings
from dataclasses import dataclass, field
from typing import Any

MESSAGE = 200_000
"""The most bytes of a request. Linux sends no more in one message by default."""
_FIRST_FREE = 300
"""Received descriptors are moved from here on, out of the way of the numbers that programs expect."""


@dataclass
class Command:
    """A Python program: what follows the interpreter's name.

    Attributes:
        way: How it is started: `-c`, `-m` or a file.
        arguments: The rest of `sys.argv`.
        warnings: The value of `-W`.
        is_unbuffered: Whether `-u` is given.
    """

    way: str
    what: str
    arguments: list[str]
    warnings: str | None = None
    is_unbuffered: bool = False

    @classmethod
    def parsed(cls, words: list[str]) -> Command | None:
        """The program of a command line without the interpreter; None if it has options that a fork cannot have."""
        options: dict[str, Any] = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "-u":
                options["is_unbuffered"] = True
            elif word == "-W" and ":" not in rest[0]:
                options["warnings"] = rest.pop(0)
            elif word in ("-c", "-m"):
                return cls(word, rest[0], rest[1:], **options)
            else:
                return None if word.startswith("-") else cls("", word, rest, **options)
        return None


@dataclass
class Request:
    """A program and its place. The descriptors come with the message, in the order of `descriptors`.

    Attributes:
        is_leader: Whether it leads a session of its own.
        is_watched: Whether its end shows as the end of the connection.
    """

    words: list[str]
    environment: dict[str, str]
    directory: str
    descriptors: list[int] = field(default_factory=lambda: [0, 1, 2])
    is_leader: bool = False
    is_watched: bool = False


def send(server: str, request: Request, descriptors: list[int]) -> socket.socket:
    """Ask for a program; the process id comes as four bytes.

    Raises:
        OSError: The request is too long, or the server has ended.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(f"\0{server}")
        socket.send_fds(connection, [json.dumps(request.__dict__).encode()], descriptors)
    except OSError:
        connection.close()
        raise
    return connection


class _Server:
    """Listens until its standard input ends."""

    def __init__(self, name: str, modules: list[str]) -> None:
        self._warnings = list(warnings.filters)
        given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        self._path = [each for each in sys.path[1:] if each not in given]
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(f"\0{name}")
        self._listener.listen(64)
        print("listening", flush=True)
        tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        sys.path[:1] = [tests, os.path.dirname(os.path.dirname(tests))]
        _import(modules)
        gc.collect()
        gc.freeze()

    def next_program(self) -> types.CodeType | str | None:
        """Fork for each request. Returns in a fork what it is to run, and None at the end of the server."""
        usual = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGCHLD, signal.SIGINT)}
        while True:
            ready, _, _ = select.select([self._listener, 0], [], [])
            if 0 in ready and not os.read(0, 1):
                return None
            if self._listener not in ready:
                continue
            connection, _ = self._listener.accept()
            data, descriptors, _, _ = socket.recv_fds(connection, MESSAGE, 100)
            _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if data and user == os.getuid() and not _fork():
                for each, handler in usual.items():
                    signal.signal(each, handler)
                self._listener.close()
                _leave_parent()
                return self._prepared(Request(**json.loads(data)), connection, descriptors)
            connection.close()
            for descriptor in descriptors:
                os.close(descriptor)

    def _prepared(self, request: Request, connection: socket.socket, descriptors: list[int]) -> types.CodeType | str:
        """Be a process as it was asked for; returns the code or the module."""
        command = Command.parsed(request.words)
        assert command is not None
        if request.is_leader:
            os.setsid()
        connection.send(struct.pack("i", os.getpid()))
        _take_descriptors(request.descriptors, [*descriptors, connection.detach()], request.is_watched)
        os.chdir(request.directory)
        os.environ.clear()
        os.environ.update(request.environment)
        time.tzset()
        _open_streams(command.is_unbuffered)
        self._set_warnings(command.warnings)
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = __builtins__
        first = {"-c": "", "-m": os.getcwd()}.get(command.way, os.path.dirname(os.path.abspath(command.what)))
        given = os.environ.get("PYTHONPATH")
        sys.path[:] = [first, *(given.split(os.pathsep) if given else ()), *self._path]
        importlib.invalidate_caches()
        sys.argv[:] = [command.way or command.what, *command.arguments]
        if command.way == "-m":
            sys.modules.pop(command.what, None)
            return command.what
        if command.way == "-c":
            if sys.version_info >= (3, 13):
                # Errors show the lines of the text.
                lines = command.what.splitlines(keepends=True)
                linecache.cache["<string>"] = (len(command.what), None, lines, "<string>")
            return compile(command.what, "<string>", "exec")
        main.__dict__["__file__"] = command.what
        with open(command.what, "rb") as file:
            return compile(file.read(), command.what, "exec")

    def _set_warnings(self, action: str | None) -> None:
        """As `-W` does, which leaves the filters that modules have set in force."""
        if action is not None:
            sys.warnoptions[:] = [action]
            warnings.filters[:] = [each for each in warnings.filters if each not in self._warnings]  # type: ignore[index]
            warnings.simplefilter(action, append=True)


def _import(modules: list[str]) -> None:
    """Import modules. The import of polars would have each fork wait at its end for a thread of this process."""
    register, atexit.register = atexit.register, lambda function, *_, **__: function  # type: ignore[assignment]
    try:
        importlib.import_module("polars")
    finally:
        atexit.register = register
    for each in modules:
        importlib.import_module(each)


def _fork() -> int:
    with warnings.catch_warnings():
        # Threads that pyarrow and polars started at their import are idle.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _leave_parent() -> None:
    """End the parent, so that the process that adopts orphans becomes it: the one that asked for the program."""
    parent = os.getpid()
    if _fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.0002)


def _take_descriptors(wanted: list[int], received: list[int], is_watched: bool) -> None:
    """Give descriptors the wanted numbers. The last one, the connection, stays open if it is watched."""
    *moved, connection = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE) for each in received]
    for each in received:
        os.close(each)
    for each, number in zip(moved, wanted, strict=True):
        os.dup2(each, number)
        os.close(each)
    if not is_watched:
        os.close(connection)


def _open_streams(is_unbuffered: bool) -> None:
    """Open the standard streams as the interpreter does."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old = getattr(sys, name)
        binary = open(number, f"{mode}b", -1 if name == "stdin" or not is_unbuffered else 0, closefd=False)  # noqa: SIM115
        at_once = is_unbuffered and name != "stdin"
        stream = io.TextIOWrapper(
            binary,
            encoding=old.encoding,
            errors=old.errors,
            newline="\n" if mode == "w" else None,
            line_buffering=name == "stderr" or os.isatty(number),
            write_through=at_once,
        )
        stream.mode = mode  # type: ignore[attr-defined]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _shown(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Print an error without the frames of this file."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.__excepthook__(kind, error.with_traceback(trace), trace)


if __name__ == "__main__":
    _program = _Server(sys.argv[1], sys.argv[2:]).next_program()
    sys.excepthook = _shown
    if isinstance(_program, str):
        runpy._run_module_as_main(_program)  # type: ignore[attr-defined]
    elif _program is not None:
        exec(_program, sys.modules["__main__"].__dict__)
