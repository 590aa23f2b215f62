"""A store that is slow, a process without descriptors, and one that forks, in reads of Java's tables: rows stay exact.

What is read, and when it happens, is drawn at random.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

from pypaimon.streaming import PaimonStreamError
from pypaimon.streaming.concurrency import forking
from support import programs
from support.corpus.follower import TABLES, Batches, Face, Plans, Rows, builder_of, follow
from support.process_state import descriptors
from support.repository import program
from support.samples import SOAK, seeded
from support.stores.fault_file_io import Call, FaultFileIO

pytestmark = [pytest.mark.slow, pytest.mark.soak]

CASES: list[tuple[str, Face]] = [(scenario, face) for scenario in TABLES for face in (Plans, Batches)]
SLOWEST = 0.03
"""Seconds of the slowest requests."""
PATIENCE = 600


def drawn(draw: random.Random, count: int) -> list[tuple[str, Face]]:
    """Some of the cases; all in the long form."""
    return CASES if SOAK else draw.sample(CASES, count)


def test_a_slow_store_leaves_the_rows_as_they_are() -> None:
    """Each request takes a time of its own, so that answers come in another order than they were asked for."""
    draw = seeded("slow store")

    def slowly(call: Call) -> Any:
        time.sleep(SLOWEST * draw.random() ** 4)
        return call.answer()

    for scenario, face in drawn(draw, 4):
        fine, _ = follow(builder_of(scenario), face)
        file_io = FaultFileIO()
        file_io.wherever(slowly)
        assert follow(builder_of(scenario, file_io), face) == (fine, 0), (scenario, face)


def test_files_that_cannot_be_opened_are_a_retriable_error_and_leave_the_rows_as_they_are() -> None:
    """Of a local table, for lack of descriptors: no file is told as missing or damaged for that."""
    draw = seeded("descriptors")
    for scenario, face in drawn(draw, 6):
        fine, _ = follow(builder_of(scenario), face)
        more = draw.randrange(4)
        stream = face(builder_of(scenario))
        found: Rows = []
        errors: list[PaimonStreamError] = []
        while True:
            try:
                with descriptors(more if len(errors) < 4 else 256):
                    got = stream.next()
            except PaimonStreamError as error:
                errors.append(error)
                continue
            if got is None:
                break
            found += got
        stream.close()
        assert found == fine, (scenario, face, more, errors)
        assert all(error.retriable for error in errors), (scenario, face, more, errors)


def test_a_fork_at_any_request_leaves_the_rows_as_they_are() -> None:
    """Among them one of a table whose plans polars makes in the parent, and cannot make in the child."""
    draw = seeded("forks")
    arguments = ["pk_orc_lookup", "Batches", "7"]
    for scenario, face in drawn(draw, 1):
        file_io = FaultFileIO()
        builder = builder_of(scenario, file_io)
        before = len(file_io.calls)
        follow(builder, face)
        arguments += [scenario, face.__name__, str(draw.randint(before + 1, len(file_io.calls)))]
    command = program("support.corpus.follower", *arguments)
    ran = programs.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert (ran.stdout.split(), ran.returncode) == (arguments[::3], 0), (arguments, ran.stderr)


def test_where_polars_does_not_work_the_rows_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for scenario, face in drawn(seeded("polars"), 6):
        fine, _ = follow(builder_of(scenario), face)
        with monkeypatch.context() as patch:
            patch.setattr(forking, "_polars_waits", True)
            assert follow(builder_of(scenario), face) == (fine, 0), (scenario, face)
