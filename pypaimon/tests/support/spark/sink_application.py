"""A Spark application in a process group of its own, which tests kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.repository import program
from support.spark.session import NO_WORKER

CHILD = "support.spark.sink_child"
POINTS = ("write", "after-write", "after-publish", "after-commit")
LIMIT = 600


class Application:
    """A Spark application in a process group of its own."""

    def __init__(self, directory: Path, job: dict[str, Any]) -> None:
        self.signals = Path(job["signals"])
        self._log = (directory / "spark.log").open("ab")
        self._begin = self._log.tell()
        environment = {
            **os.environ,
            "SINK_TEST_JOB": json.dumps(job),
        }
        self.process = subprocess.Popen(
            program(CHILD), stdout=self._log, stderr=self._log, env=environment, start_new_session=True,
            cwd=directory,
        )  # fmt: skip

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait for something that the application does; an application that ended before it is a failure."""
        limit = time.monotonic() + LIMIT
        while not condition():
            assert self.process.poll() is None, f"the application ended; see {self._log.name}"
            assert time.monotonic() < limit, f"nothing happened for {LIMIT} s; see {self._log.name}"
            time.sleep(0.05)

    @property
    def gave_up(self) -> bool:
        """Whether it has ended because Spark could not start a Python process in time: a death like any other."""
        log = Path(self._log.name).read_bytes()[self._begin :]
        return self.process.poll() is not None and NO_WORKER.encode() in log

    def finish(self) -> None:
        """Wait for its end."""
        assert self.process.wait(LIMIT) == 0, f"the application failed; see {self._log.name}"

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *exception: object) -> None:
        """kill -9 of driver, JVM and workers at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()
