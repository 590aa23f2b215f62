"""Debezium's changes of a database table from Kafka to a Paimon table, exactly once.

    pip install confluent-kafka
    python examples/kafka_changes.py localhost:9092 inventory.public.orders /path/to/warehouse db.orders

The offsets are in the snapshot of their rows, so a restart continues after them, whatever ended the program. Nothing is
committed to Kafka. One process reads all partitions of the topic, because a commit user has one writer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any

from pypaimon import CatalogFactory

from pypaimon.streaming import BlockingStreamWriter, stream_write_builder

OFFSETS = "kafka.offsets"
"""Property of each commit: for each partition the offset of the first message that the table does not hold."""

BEGINNING = -2
"""Where a partition begins of which nothing is noted: librdkafka's OFFSET_BEGINNING."""

SECONDS, MOST_MESSAGES = 10.0, 100_000
"""A commit is made after this many seconds or messages, if there are any."""


def noted_offsets(properties: Mapping[str, str], topic: str, partitions: Iterable[int]) -> dict[int, int]:
    """The next offset of each partition: after the table's rows, else the beginning."""
    found = json.loads(properties.get(OFFSETS, "{}")).get(topic, {})
    return {partition: found.get(str(partition), BEGINNING) for partition in partitions}


def take(writer: BlockingStreamWriter, messages: Iterable[Any], offsets: dict[int, int]) -> int:
    """Write the changes of messages and update the offsets. Returns the number of messages."""
    taken = []
    for message in messages:
        if message.error():
            raise RuntimeError(f"Kafka: {message.error()}")
        taken.append(message)
    writer.write_changes([message.value() for message in taken], "debezium-json", on_new_column="add")
    for message in taken:
        offsets[message.partition()] = message.offset() + 1
    return len(taken)


def follow(writer: BlockingStreamWriter, consumer: Any, topic: str, offsets: dict[int, int]) -> None:
    """Write and commit, until the consumer raises."""
    waiting, since = 0, time.monotonic()
    while True:
        waiting += take(writer, consumer.consume(num_messages=10_000, timeout=1.0), offsets)
        if waiting >= MOST_MESSAGES or (waiting and time.monotonic() - since >= SECONDS):
            report = writer.commit(properties={OFFSETS: json.dumps({topic: offsets})})
            print(f"snapshot {report.snapshot_id}: {waiting} messages")
            waiting, since = 0, time.monotonic()


def main(brokers: str, topic: str, warehouse: str, table: str) -> None:
    """Follow a topic until the program is ended."""
    from confluent_kafka import Consumer, TopicPartition

    target = CatalogFactory.create({"warehouse": warehouse}).get_table(table)
    # Messages that are gone before they were read are an error, and not passed over.
    settings = {"enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "unused", **settings})
    try:
        with stream_write_builder(target).with_commit_user(f"kafka-{topic}").open_sync() as writer:
            partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            offsets = noted_offsets(writer.committed_properties, topic, partitions)
            consumer.assign([TopicPartition(topic, number, offset) for number, offset in offsets.items()])
            follow(writer, consumer, topic, offsets)
    except KeyboardInterrupt:
        print("interrupted; the next run continues after the last commit")
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 5 else sys.exit(__doc__)
