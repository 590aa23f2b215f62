"""An S3 server in a process of its own, for clients that let no other thread run while they wait."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from support.repository import program
from support.stores.s3_server import S3Server


class S3Process:
    """A server. `losing` makes it lose an answer.

    Attributes:
        endpoint: Its URL.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.endpoint = self._answer()

    @contextmanager
    def losing(self, part: str) -> Iterator[None]:
        """The answer to the first PUT within the block whose path has a part in it is lost; there must be one."""
        self._ask(part)
        yield
        assert self._ask("") == "lost"

    def _ask(self, part: str) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{part}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def s3_process() -> Iterator[S3Process]:
    """A server, with an empty bucket."""
    command = program("support.stores.s3_process")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield S3Process(process)
        finally:
            process.kill()


def _serve() -> None:
    """Each line tells the part of a path; an empty one asks whether the answer was lost."""
    server = S3Server()
    server.start()
    print(server.endpoint, flush=True)
    while part := sys.stdin.readline().strip():
        with server.failing(part, "lost", method="PUT") as left:
            print("fails", flush=True)
            sys.stdin.readline()
            print("not lost" if left else "lost", flush=True)


if __name__ == "__main__":
    _serve()
