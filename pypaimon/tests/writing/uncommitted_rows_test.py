"""A writer that is left with rows that were not committed says so; both faces by one rule."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import stream_write_builder
from pypaimon.streaming.logs import FIELDS
from support.tables.written_tables import key_value_table, rows

pytestmark = pytest.mark.slow

Calls = list[str]


def left_after(builder: Any, face: str, calls: Calls) -> None:
    """Open a writer, make some calls, and leave it."""
    if face == "blocking":
        with builder.open_sync() as writer:
            for call in calls:
                getattr(writer, call)(*([rows(1)] if call == "write" else []))
        return

    async def run() -> None:
        async with builder.open() as writer:
            for call in calls:
                await getattr(writer, "aclose" if call == "close" else call)(*([rows(1)] if call == "write" else []))

    asyncio.run(run())


@pytest.fixture(params=["blocking", "asyncio"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def builder(tmp_path: Path) -> Any:
    return stream_write_builder(key_value_table(tmp_path, keyed=False).handle()).with_commit_user("job")


@pytest.fixture
def warned(caplog: pytest.LogCaptureFixture) -> Callable[[], list[dict[str, Any]]]:
    def found() -> list[dict[str, Any]]:
        told = [vars(record)[FIELDS] for record in caplog.records if hasattr(record, FIELDS)]
        return [each for each in told if each["event"] == "rows_uncommitted"]

    return found


@pytest.mark.parametrize("calls", [["write"], ["write", "commit", "write"], ["write", "close"]])
def test_rows_that_were_not_committed_are_a_warning(face: str, builder: Any, warned: Any, calls: Calls) -> None:
    left_after(builder, face, calls)
    assert warned() == [{"event": "rows_uncommitted", "table": "db.w", "user": "job"}]


@pytest.mark.parametrize("calls", [[], ["write", "commit"], ["write", "abort"], ["write", "commit", "close"]])
def test_a_writer_without_uncommitted_rows_warns_of_nothing(face: str, builder: Any, warned: Any, calls: Calls) -> None:
    left_after(builder, face, calls)
    assert warned() == []


def test_an_error_says_it_already(face: str, builder: Any, warned: Any) -> None:
    with pytest.raises(AttributeError):
        left_after(builder, face, ["write", "no_such_call"])
    assert warned() == []


def test_a_writer_that_is_never_closed_is_a_resource_warning(builder: Any) -> None:
    def abandoned() -> None:
        builder.open_sync().__enter__().write(rows(1))
        gc.collect()

    with pytest.warns(ResourceWarning, match=r"BlockingStreamWriter\(db\.w, 'job', open\) was never closed"):
        abandoned()
