"""A hash of Redis that stays equal to a primary-key table, exactly once: a field per key, next to the position.

    pip install redis
    python examples/copy_to_redis.py /path/to/warehouse db.orders redis://localhost:6379/0 orders

Rows are JSON: `HGET orders '[1]'`. The changes of a snapshot and the position after them are one MULTI/EXEC, which
Redis applies as a whole, so any reader sees whole snapshots, and each run continues where the last one ended or was
killed. A Redis that loses writes in a crash (`appendfsync everysec`) loses rows and position together; they come again.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import redis
from pypaimon import CatalogFactory

from pypaimon.streaming import Batch, BlockingBatch, Position, Replication, stream_read_builder
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.targets import is_to_apply, last_changes


class RedisHash:
    """A target for `replicate`.

    Args:
        client: The connection.
        name: The hash with the rows; the position is in the string `{name}:position`.
        keys: The primary key of the table.
    """

    def __init__(self, client: redis.Redis, name: str, keys: list[str]) -> None:
        self._client, self._name, self._keys = client, name, keys
        # A pipeline keeps its commands until they are executed as one transaction.
        self._plan = client.pipeline(transaction=True)
        self._skips = False

    def load_position(self) -> Position | None:
        saved = self._call(lambda: self._client.get(f"{self._name}:position"))
        return None if saved is None else Position.from_json(saved.decode())

    def apply(self, batch: Batch | BlockingBatch) -> None:
        if batch.is_first:
            self._plan.reset()
            self._skips = not is_to_apply(batch, self.load_position())
        if self._skips:
            return
        if batch.begins_state:
            self._plan.delete(self._name)
        rows, gone = last_changes(batch, self._keys)
        for row in gone.to_pylist():
            self._plan.hdel(self._name, self._field(row))
        for row in rows.to_pylist():
            self._plan.hset(self._name, self._field(row), json.dumps(row, default=str))
        if batch.is_last:
            self._plan.set(f"{self._name}:position", batch.plan_after.to_json())
            self._call(self._plan.execute)

    def _field(self, row: dict[str, Any]) -> str:
        return json.dumps([row[key] for key in self._keys], default=str)

    def _call(self, call: Any) -> Any:
        try:
            return call()
        except (redis.ConnectionError, redis.TimeoutError) as error:
            # `Replication` repeats what is retriable. If only the answer was lost, the position says so.
            lost = TargetError(f"Redis: {error}")
            lost.retriable = True
            raise lost from error


def main(warehouse: str, table: str, address: str, name: str) -> None:
    """Copy for ever, until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    source = CatalogFactory.create({"warehouse": warehouse}).get_table(table)
    # Snapshots that are not copied yet do not expire.
    builder = stream_read_builder(source).with_consumer_id(f"redis-{name}")
    with redis.Redis.from_url(address) as client:
        Replication(builder, RedisHash(client, name, source.primary_keys)).run()


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 5 else sys.exit(__doc__)
