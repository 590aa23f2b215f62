"""Processes that share a table as members of a group, and what they were given.

As a program it is one of them: `readers.py SETTINGS`, a JSON object. Each batch is a line of JSON, written before it is
confirmed, and another line says what became of that. It ends when its input is closed.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pypaimon import CatalogFactory

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.errors import AssignmentLostError
from pypaimon.streaming.groups.group_directory import GroupMemberInfo, group_info
from pypaimon.streaming.metadata.table_directory import TableDirectory
from support import programs
from support.repository import program

SLOTS = 6
_FOR_EVER = 240


@dataclass
class Reader:
    """One process.

    Attributes:
        is_paused: Whether it is suspended.
    """

    process: subprocess.Popen[bytes]
    lines: Path
    is_paused: bool = False

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def output(self) -> list[dict[str, Any]]:
        """The lines that it has printed. A line during which it was killed is left out."""
        return [json.loads(line) for line in self.lines.read_text().splitlines(keepends=True) if line.endswith("\n")]


@dataclass
class Readers:
    """The members of a group.

    Args:
        settings: Settings of each process, see `main`.
    """

    home: Path
    settings: dict[str, Any]
    all: list[Reader] = field(default_factory=list)

    @property
    def running(self) -> list[Reader]:
        return [reader for reader in self.all if reader.is_running and not reader.is_paused]

    @property
    def paused(self) -> list[Reader]:
        return [reader for reader in self.all if reader.is_running and reader.is_paused]

    def start(self, member: str | None = None) -> Reader:
        lines = self.home / f"reader-{len(self.all)}.jsonl"
        command = program("support.groups.readers", json.dumps({**self.settings, "member": member}))
        with lines.open("wb") as output, lines.with_suffix(".err").open("wb") as errors:
            process = programs.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=errors)
        self.all.append(reader := Reader(process, lines))
        return reader

    def kill(self, reader: Reader) -> None:
        reader.process.kill()
        reader.process.wait()

    def pause(self, reader: Reader) -> None:
        reader.process.send_signal(signal.SIGSTOP)
        reader.is_paused = True

    def resume(self, reader: Reader) -> None:
        """Resume it; it does not know how long it was suspended."""
        reader.process.send_signal(signal.SIGCONT)
        reader.is_paused = False

    def end(self, reader: Reader) -> None:
        """Have it end gracefully."""
        assert reader.process.stdin is not None
        reader.process.stdin.close()
        assert reader.process.wait(_FOR_EVER) == 0, reader.lines.with_suffix(".err").read_text()

    def wait(self, table: Any) -> None:
        """Wait until the group has confirmed the whole table."""
        end = time.monotonic() + _FOR_EVER
        while not _is_caught_up(group_info(TableDirectory.of(table), "etl")):
            assert time.monotonic() < end, self.errors()
            assert self.running, self.errors()
            time.sleep(0.05)

    def __enter__(self) -> Readers:
        return self

    def __exit__(self, *_: object) -> None:
        for reader in self.all:
            self.kill(reader)
            if reader.process.stdin is not None:
                with suppress(BrokenPipeError):
                    reader.process.stdin.close()

    def errors(self) -> list[str]:
        ended = (reader for reader in self.all if reader.process.poll() not in (None, 0, -signal.SIGKILL))
        return [reader.lines.with_suffix(".err").read_text() for reader in ended]

    def check(self, keys: set[int]) -> None:
        """Each key was confirmed, and once: what was confirmed never comes again, and what was not does.

        Of a process that was killed nobody knows whether its last plan was saved.
        """
        confirmed: Counter[int] = Counter()
        unknown: set[int] = set()
        for reader in self.all:
            plan: list[int] = []
            for line in reader.output():
                if "keys" in line:
                    plan += line["keys"]
                elif line["done"]:
                    # Rows of lost slots are read again, rows of the others are not.
                    confirmed.update(() if "lost" in line else plan)
                    unknown |= set(plan if "lost" in line else ())
                    plan = []
            unknown |= set(plan)
        assert not keys - confirmed.keys() - unknown
        assert not [key for key, times in confirmed.items() if times > 1]

    def check_order(self, slot_of: Callable[[int], int]) -> None:
        """Rows of a slot come in order, whatever became of the processes.

        A ownership begins where the ones before it have confirmed, or before that where something was not; what was
        confirmed and saved never comes again to a later one.
        """
        ownerships: dict[tuple[int, int], list[int]] = defaultdict(list)
        saved: dict[tuple[int, int], int] = {}
        for reader in self.all:
            plan: list[int] = []
            tokens: dict[str, int] = {}
            for line in reader.output():
                if "keys" in line:
                    tokens = line["tokens"]
                    plan += line["keys"]
                    for slot, token in tokens.items():
                        own = [key for key in line["keys"] if slot_of(key) == int(slot)]
                        ownerships[int(slot), token] += own
                    wrong = [key for key in line["keys"] if str(slot_of(key)) not in tokens]
                    assert not wrong, (line, wrong)
                elif line["done"]:
                    for slot, token in tokens.items():
                        own = [key for key in plan if slot_of(key) == int(slot)]
                        if own and int(slot) not in line.get("lost", ()):
                            saved[int(slot), token] = max(own)
                    plan = []
        for slot in {slot for slot, _ in ownerships}:
            done = -1
            for each, token in sorted(ownerships):
                if each != slot or not ownerships[slot, token]:
                    continue
                keys = ownerships[slot, token]
                assert min(keys) > done, f"slot {slot}: {keys} after {done} was saved"
                done = max(done, saved.get((slot, token), -1))


def _is_caught_up(members: list[GroupMemberInfo] | None) -> bool:
    return bool(members) and all(each.member and not each.lag for each in members or ())


def main(settings: dict[str, Any]) -> None:
    """Be a member until the input is closed."""
    table = CatalogFactory.create(settings["catalog"]).get_table(settings["table"])
    builder = stream_read_builder(table).with_poll_interval_ms(settings["poll_ms"]).with_limits(max_rows=40)
    group = builder.new_group("etl", member=settings["member"], session_timeout=settings["session"], commit="manual")
    with group.open_sync() as stream:
        threading.Thread(target=lambda: (sys.stdin.read(), stream.stop()), daemon=True).start()
        for batch in stream:
            report(tokens=batch.tokens, keys=batch.rows["k"].to_pylist(), whole=batch.is_last)
            try:
                batch.commit()
                report(done=batch.is_last)
            except AssignmentLostError as error:
                report(done=batch.is_last, lost=error.slots)


def report(**line: Any) -> None:
    if "tokens" in line:
        line["tokens"] = dict(line["tokens"])
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
