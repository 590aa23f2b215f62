"""The example that follows a topic of Kafka: each message once, wherever the program ends. Kafka itself is a list."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.repository import load_example
from support.tables.streamed_table import Table
from support.tables.written_tables import key_value_table

TOPIC = "inventory.public.orders"


class Message:
    """What the client of Kafka gives for a message."""

    def __init__(self, partition: int, offset: int, value: bytes | None, error: str | None = None) -> None:
        self.partition = lambda: partition
        self.offset = lambda: offset
        self.value = lambda: value
        self.error = lambda: error


class Ended(Exception):
    """The program dies."""


class Log:
    """A topic of two partitions, read from some offsets; the consumer dies after so many messages."""

    def __init__(self, messages: list[Message], offsets: dict[int, int], most: int) -> None:
        self._left = [each for each in messages if each.offset() >= offsets[each.partition()]][:most]

    def consume(self, num_messages: int, timeout: float) -> list[Message]:
        if not self._left:
            raise Ended
        return [self._left.pop(0) for _ in range(min(3, len(self._left)))]


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example("kafka_changes")


def inserts(count: int) -> list[Message]:
    """One row each; without a key, so that a row that came twice would be seen."""
    found = []
    for number in range(count):
        value = json.dumps({"op": "c", "before": None, "after": {"k": number, "v": f"v{number}"}})
        found.append(Message(number % 2, number // 2, value.encode()))
    return found


def run(example: ModuleType, table: Table, messages: list[Message], most: int) -> None:
    with table.writer("kafka").open_sync() as writer:
        offsets = example.noted_offsets(writer.committed_properties, TOPIC, [0, 1])
        with pytest.raises(Ended):
            example.follow(writer, Log(messages, offsets, most), TOPIC, offsets)


def test_each_message_is_written_once(example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "MOST_MESSAGES", 5)
    monkeypatch.setattr(example, "SECONDS", math.inf)
    table = key_value_table(tmp_path, keyed=False)
    messages = inserts(40)
    for most in (1, 7, 13, 6, 40, 40):
        run(example, table, messages, most)
    # Of 40 messages in pieces of three, and commits of six, the last ones wait for more.
    held = [key for key, _ in table.rows()]
    assert sorted(held) == list(range(36))
    newest: dict[str, Any] = table.snapshot(table.ids()[-1])
    assert json.loads(newest["properties"][example.OFFSETS]) == {TOPIC: {"0": 18, "1": 18}}


def test_errors_of_kafka_end_it(example: ModuleType, tmp_path: Path) -> None:
    table = key_value_table(tmp_path, keyed=False)
    with table.writer().open_sync() as writer, pytest.raises(RuntimeError, match="no leader"):
        example.take(writer, [Message(0, 0, None, "no leader")], {})
