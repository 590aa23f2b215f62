"""A group and live Java on one table: Java's expiry keeps what the group needs, and Java's reset ends the group."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import ConsumerConflictError, stream_read_builder
from pypaimon.streaming.groups import GroupStreamBuilder
from support.java.live import LiveJava

pytestmark = pytest.mark.java

EXPIRE = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}


class Shared:
    """A table that Java made, with two buckets, which the group `etl` reads."""

    def __init__(self, java: LiveJava, warehouse: Path) -> None:
        self.java, self._warehouse = java, str(warehouse)
        options = {"bucket": "2", "bucket-key": "k"}
        fields = [["k", "BIGINT NOT NULL"]]
        java.call(
            "create", warehouse=self._warehouse, fields=fields, partition_keys=[], primary_keys=[], options=options
        )

    def write(self, *keys: int) -> None:
        self.java.call("write", flushes=[[["+I", key] for key in keys]])

    def group(self) -> GroupStreamBuilder:
        table = CatalogFactory.create({"warehouse": self._warehouse}).get_table("d.t")
        builder = stream_read_builder(table).with_poll_interval_ms(20)
        return builder.new_group("etl", session_timeout=2.0, commit="manual")


@pytest.fixture
def shared(java: LiveJava, tmp_path: Path) -> Shared:
    return Shared(java, tmp_path)


def keys(batch: Any) -> list[int]:
    found: list[int] = batch.rows["k"].to_pylist()
    return sorted(found)


def test_expiry_keeps_what_the_group_has_not_confirmed(shared: Shared) -> None:
    shared.write(*range(10))
    with shared.group().open_sync() as stream:
        first = next(stream)
        assert keys(first) == list(range(10))
        for number in range(3):
            shared.write(*range(100 * (number + 1), 100 * (number + 1) + 10))
        shared.java.call("expire", options=EXPIRE)
        first.commit()
    # Also while there is no member: the last one has moved the pin to its position.
    shared.write(*range(400, 410))
    shared.java.call("expire", options=EXPIRE)
    found: list[int] = []
    with shared.group().open_sync() as stream:
        while len(found) < 40:
            batch = next(stream)
            found += keys(batch)
            batch.commit()
    assert sorted(found) == [key for start in (100, 200, 300, 400) for key in range(start, start + 10)]


def test_a_reset_by_java_ends_the_group_and_the_next_one_begins_there(shared: Shared) -> None:
    shared.write(*range(10))
    shared.write(*range(100, 110))
    with shared.group().open_sync() as stream:
        next(stream).commit()
        shared.java.call("consumer", name="etl.group", next=2)
        with pytest.raises(ConsumerConflictError, match="pin"):
            next(stream)
    with shared.group().open_sync() as stream:
        assert keys(next(stream)) == list(range(100, 110))
