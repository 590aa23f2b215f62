"""A lock in the database of a target is waited out by a service; what does not pass ends it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from pypaimon.streaming import BlockingBatch, run_forever
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.testing import SmallTable
from support.tables.handles import batch_read
from support.tables.live_tables import in_order
from support.tables.target_places import SQLitePlace

pytestmark = pytest.mark.slow


def test_a_service_waits_for_a_lock(tmp_path: Path) -> None:
    source, place, errors = SmallTable(tmp_path / "w"), SQLitePlace(tmp_path), []
    source.commit({"id": 1})
    with closing(place.connected()) as others, source.builder().open_sync() as stream:
        target = place.opened(None)
        with others.cursor() as cursor:
            cursor.execute("CREATE TABLE theirs (id INTEGER)")

        def handle(batch: BlockingBatch) -> None:
            if len(errors) == 2:
                others.rollback()
            try:
                target.apply(batch)
            except TargetError as error:
                errors.append(error)
                raise

        run_forever(stream, handle, attempts=1, first_pause=0.0)
    assert [error.retriable for error in errors] == [True, True]
    assert in_order(place.held()) == in_order(batch_read(source.table))


def test_what_does_not_pass_ends_a_service(tmp_path: Path) -> None:
    source, place = SmallTable(tmp_path / "w"), SQLitePlace(tmp_path)
    source.commit({"id": 1})
    place.execute("CREATE VIEW copy AS SELECT 1 AS id WHERE 0")
    target = place.opened(None)
    with source.builder().open_sync() as stream, pytest.raises(TargetError) as raised:
        run_forever(stream, target.apply, first_pause=0.0)
    assert not raised.value.retriable
