"""The writer for asyncio: the event loop goes on meanwhile, and a call that is cancelled ends the writer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.errors import WriterClosedError
from pypaimon.streaming.writing import pending_rows, table_writer
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return key_value_table(tmp_path)


class Gate:
    """Where calls wait until they are let through."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def through(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, which waits first."""

        def waiting(*arguments: Any, **named: Any) -> Any:
            self.reached.set()
            assert self.opened.wait(60)
            return call(*arguments, **named)

        return waiting

    async def is_reached(self) -> None:
        """Wait for a call to be here, without holding up the loop."""
        assert await asyncio.to_thread(self.reached.wait, 60)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.opened.set()


@contextmanager
def held(monkeypatch: pytest.MonkeyPatch, gate: Gate, name: str) -> Iterator[None]:
    """What the writer asks of the layers below waits at the gate."""
    with monkeypatch.context() as patched:
        module = pending_rows if name == "arrow_input" else table_writer
        patched.setattr(module, name, gate.through(getattr(module, name)))
        yield


def test_it_writes_and_commits(table: Table) -> None:
    async def run() -> None:
        async with table.writer().with_memory_limit(1).open() as writer:
            await writer.write(rows(1, 2))
            assert (await writer.commit()).snapshot_id == 1
            await writer.write(rows(3))
            await writer.abort()
            await writer.write(rows(4))
            assert (await writer.commit(7)).snapshot_id == 2
            assert writer.last_committed == 7
            committed = table.data_files()
            await writer.write(rows(5))
        assert table.data_files() == committed

    asyncio.run(run())
    assert [key for key, _ in table.rows()] == [1, 2, 4]


def test_the_loop_continues_while_a_commit_waits(table: Table, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with table.writer().open() as writer:
            await writer.write(rows(1))
            with held(monkeypatch, gate, "commit_once"):
                committing = asyncio.create_task(writer.commit())
                await gate.is_reached()
                with pytest.raises(StreamConfigError, match="in use by another call"):
                    await writer.write(rows(2))
                gate.opened.set()
                assert (await committing).snapshot_id == 1

    asyncio.run(run())
    assert table.rows() == [(1, "v1")]


@pytest.mark.parametrize("step", ["arrow_input", "commit_once"])
def test_a_cancelled_call_ends_the_writer(table: Table, gate: Gate, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """It goes on behind: a commit may come about, and the next writer knows."""

    async def run() -> int | None:
        async with table.writer().with_memory_limit(1).open() as writer:
            await writer.write(rows(1))
            with held(monkeypatch, gate, step):
                call = writer.write(rows(2)) if step == "arrow_input" else writer.commit()
                running = asyncio.create_task(call)
                await gate.is_reached()
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
            with pytest.raises(WriterClosedError, match="a call was cancelled"):
                await writer.commit()
            gate.opened.set()
        async with table.writer().open() as writer:
            return writer.last_committed

    found = asyncio.run(run())
    if step == "commit_once":
        assert (found, table.rows()) == (0, [(1, "v1")])
    else:
        assert (found, table.data_files()) == (None, []), "nothing is left of what was not committed"


def test_it_is_opened_once_and_as_its_face_says(table: Table) -> None:
    async def run() -> None:
        writer = table.writer().open()
        with pytest.raises(StreamConfigError, match="not open"):
            await writer.write(rows(1))
        async with writer:
            pass
        await writer.aclose()
        with pytest.raises(WriterClosedError, match="it was closed"):
            await writer.write(rows(1))
        with pytest.raises(StreamConfigError, match="opened once"):
            await writer.__aenter__()
        with pytest.raises(TypeError, match="open_sync"), table.writer().open():
            pass
        with pytest.raises(TypeError, match=r"builder.open\(\)"):
            async with table.writer().open_sync():
                pass

    asyncio.run(run())
