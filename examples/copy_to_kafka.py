"""The changes of a primary-key table as a topic of Kafka, exactly once: for each change its key and the row after it.

    pip install confluent-kafka
    python examples/copy_to_kafka.py /path/to/warehouse db.orders localhost:9092 orders

A deleted row is a message without a value, as a compacted topic has it. The messages of a snapshot are one transaction,
with a message in the topic `orders.position` that says where to continue. So consumers with `isolation.level` set to
`read_committed`, their default in librdkafka, see whole snapshots, each once, wherever this program is killed. A second
one for the same topic ends the first. Create both topics yourself where replication matters; `orders.position` has one
partition and may be compacted.
"""

from __future__ import annotations

import json
import logging
import sys

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pypaimon import CatalogFactory

from pypaimon.streaming import Batch, BlockingBatch, Position, Replication, StreamConfigError, stream_read_builder
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.targets import is_to_apply, last_changes

SECONDS = 60.0
MOST_WAITING = 50_000
"""Messages in the producer's queue, which holds twice as many by default."""


class KafkaTopic:
    """A target for `replicate`.

    Args:
        brokers: Addresses, as `bootstrap.servers`.
        topic: The topic of the rows.
        keys: The primary key of the table.
    """

    def __init__(self, brokers: str, topic: str, keys: list[str]) -> None:
        self._brokers, self._topic, self._keys = brokers, topic, keys
        self._producer: Producer | None = None
        self._position: Position | None = None
        self._skips = self._is_open = False

    def load_position(self) -> Position | None:
        """The last position of a committed transaction."""
        try:
            if self._producer is None:
                settings = {"transactional.id": self._topic, "transaction.timeout.ms": 900_000}
                producer = Producer({"bootstrap.servers": self._brokers, **settings})
                # Ends what an earlier producer has left open, and that producer if it still runs.
                producer.init_transactions(SECONDS)
                self._position = self._last_position()
                self._producer = producer
            elif self._is_open:
                self._roll_back()
            return self._position
        except KafkaException as error:
            raise self._failed(error) from error

    def apply(self, batch: Batch | BlockingBatch) -> None:
        if batch.is_first:
            position = self.load_position()
            self._skips = not is_to_apply(batch, position)
            if batch.begins_state and position is not None and not self._skips:
                raise StreamConfigError(f"{self._topic}: the state begins again, and a topic cannot be emptied")
        if self._skips:
            return
        assert self._producer is not None
        try:
            if not self._is_open:
                self._producer.begin_transaction()
                self._is_open = True
            rows, gone = last_changes(batch, self._keys)
            for table, has_value in ((gone, False), (rows, True)):
                for row in table.to_pylist():
                    key = json.dumps([row[name] for name in self._keys], default=str)
                    self._produce(self._topic, key, json.dumps(row, default=str) if has_value else None)
            if batch.is_last:
                self._produce(f"{self._topic}.position", self._topic, batch.plan_after.to_json())
                self._producer.commit_transaction(SECONDS)
                self._is_open, self._position = False, batch.plan_after
        except KafkaException as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Take back what is not committed."""
        if self._producer is not None and self._is_open:
            self._roll_back()

    def _produce(self, topic: str, key: str, value: str | None) -> None:
        assert self._producer is not None
        while len(self._producer) >= MOST_WAITING:
            self._producer.poll(1)
        self._producer.produce(topic, key=key, value=value)

    def _roll_back(self) -> None:
        assert self._producer is not None
        self._producer.abort_transaction(SECONDS)
        self._is_open = False

    def _last_position(self) -> Position | None:
        topic = f"{self._topic}.position"
        settings = {"enable.auto.commit": False, "isolation.level": "read_committed", "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self._brokers, "group.id": "unused", **settings})
        try:
            if topic not in consumer.list_topics(timeout=SECONDS).topics:
                return None
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            last = None
            while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
                last = message.value()
            # The end of the partition is reported as an error.
            if message is None or message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT) if message is None else message.error())
            return None if last is None else Position.from_json(last.decode())
        finally:
            consumer.close()

    def _failed(self, error: KafkaException) -> TargetError:
        """What failed; the next attempt makes another producer."""
        self._producer, self._is_open = None, False
        failed = TargetError(f"Kafka, topic {self._topic}: {error}")
        # A producer that another one has ended must not begin again.
        failed.retriable = not error.args[0].fatal()
        return failed


def main(warehouse: str, table: str, brokers: str, topic: str) -> None:
    """Copy for ever, until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    source = CatalogFactory.create({"warehouse": warehouse}).get_table(table)
    # Snapshots that are not copied yet do not expire.
    builder = stream_read_builder(source).with_consumer_id(f"kafka-{topic}")
    target = KafkaTopic(brokers, topic, source.primary_keys)
    try:
        Replication(builder, target).run()
    finally:
        target.close()


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 5 else sys.exit(__doc__)
