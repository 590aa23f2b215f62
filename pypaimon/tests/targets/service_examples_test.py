"""The examples that bring changes to other systems, and that serve rows, do what they promise with real servers."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from http import HTTPStatus
from itertools import islice, product
from pathlib import Path
from socket import socket
from typing import Any

import httpx
import pytest
import redis
import yaml
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from pypaimon.streaming import Replication, StreamConfigError, replicate, run_forever, stream_read_builder
from pypaimon.streaming.errors import TargetError
from pypaimon.streaming.targets import Target
from pypaimon.streaming.testing import SmallTable, check_target
from support.repository import ROOT, load_example
from support.samples import seeded
from support.stores.http_server import HttpServer
from support.stores.real_servers import kafka, redis_server
from support.waits import until

pytestmark = [pytest.mark.server, pytest.mark.slow]


# ---- Redis ----


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


def test_a_hash_of_redis_is_the_table_wherever_the_program_ends(redis_url: str) -> None:
    program = load_example("copy_to_redis")
    with redis.Redis.from_url(redis_url) as client:

        def open_target(name: str) -> Target:
            return program.RedisHash(client, name, ["id"])

        def read_rows(name: str) -> list[dict[str, Any]]:
            return [json.loads(row) for row in client.hvals(name)]

        check_target(open_target, read_rows, schema_changes=False, nans=False, histories=1)


def test_a_redis_that_is_gone_is_waited_for(tmp_path: Path) -> None:
    source, program = SmallTable(tmp_path / "w"), load_example("copy_to_redis")
    source.commit({"id": 1}, {"id": 2})
    with redis_server(tmp_path) as url, redis.Redis.from_url(url) as client:
        target = program.RedisHash(client, "orders", ["id"])
        replicate(source.builder(), target)
        assert {field.decode() for field in client.hkeys("orders")} == {"[1]", "[2]"}
    source.commit(("-D", {"id": 1}))
    with pytest.raises(TargetError, match="Redis") as gone:
        replicate(source.builder(), target)
    assert gone.value.retriable
    # It has kept on its disk what it had confirmed.
    with redis_server(tmp_path) as url, redis.Redis.from_url(url) as client:
        Replication(source.builder(), program.RedisHash(client, "orders", ["id"])).run()
        assert {field.decode() for field in client.hkeys("orders")} == {"[2]"}


# ---- Kafka ----


class Killed(BaseException):
    """The program ends here: nothing is taken back."""


class Killing:
    """A producer of Kafka whose program is killed at one of its next calls, before or after it."""

    def __init__(self, producer: Any, calls: int) -> None:
        self._producer = producer
        self._left = calls

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._producer, name)

        def call(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left > 0:
                result = method(*arguments, **named)
            if self._left == 0 or (self._left == 1 and name == "commit_transaction"):
                # What waits in the memory of a program is not sent any more.
                self._producer.purge()
                raise Killed
            return result

        return call


def messages(brokers: str, topic: str) -> list[tuple[Any, Any]]:
    """Keys and rows, as consumers of committed transactions get them."""
    settings = {"group.id": "test", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": brokers, **settings})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found = []
        while (message := consumer.poll(60)).error() is None:
            value = message.value()
            found.append((json.loads(message.key()), None if value is None else json.loads(value)["number"]))
        assert message.error().code() == KafkaError._PARTITION_EOF
        return found


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.mark.java
@pytest.mark.nightly
def test_a_topic_of_kafka_has_each_change_once_wherever_the_program_is_killed(brokers: str, tmp_path: Path) -> None:
    source, program, random = SmallTable(tmp_path / "w"), load_example("copy_to_kafka"), seeded("kafka")
    wanted: list[set[tuple[int, int | None]]] = []
    rows: set[int] = set()
    for number in range(7):
        changes: dict[int, int | None] = {
            key: None if key in rows and random.random() < 0.3 else number
            for key in random.sample(range(6), random.randint(1, 4))
        }
        rows = rows - {*changes} | {key for key, new in changes.items() if new is not None}
        source.commit(*(("-D" if new is None else "+I", {"id": key, "number": new}) for key, new in changes.items()))
        wanted.append({*changes.items()})
        target = program.KafkaTopic(brokers, "orders", ["id"])
        if target.load_position() is not None:
            target._producer = Killing(target._producer, random.randint(1, 9))
        # What a killed program leaves open a later producer ends.
        with suppress(Killed):
            replicate(source.builder(), target)
    target = program.KafkaTopic(brokers, "orders", ["id"])
    replicate(source.builder(), target)
    found = messages(brokers, "orders")
    left = iter(found)
    assert [{(key, new) for (key,), new in islice(left, len(changes))} for changes in wanted] == wanted
    assert list(left) == []
    # A second program for the topic ends the first.
    another = program.KafkaTopic(brokers, "orders", ["id"])
    assert another.load_position() == target.load_position()
    source.commit({"id": 9, "number": 9})
    with pytest.raises(TargetError, match=r"(?i)fenced") as fenced:
        replicate(source.builder(), target)
    assert not fenced.value.retriable
    replicate(source.builder(), another)
    assert messages(brokers, "orders") == [*found, ([9], 9)]
    source.commit({"id": 10})
    source.commit({"id": 11})
    source.expire()
    with pytest.raises(StreamConfigError, match="a topic cannot be emptied"):
        replicate(source.builder().with_on_expired("full"), another)


@pytest.mark.java
@pytest.mark.nightly
def test_changes_of_debezium_come_from_kafka_into_a_table_once(brokers: str, tmp_path: Path) -> None:
    source, program, topic = (
        SmallTable(tmp_path / "w", name="db.orders"),
        load_example("kafka_changes"),
        "public.orders",
    )
    producer = Producer({"bootstrap.servers": brokers})

    def produce(*ids: int) -> None:
        for number in ids:
            after = {"id": number, "name": f"n{number}", "number": number, "amount": 0.5}
            producer.produce(topic, json.dumps({"op": "c", "before": None, "after": after}))
        producer.flush()

    for ids in ((1, 2), (3, 4, 5)):
        produce(*ids)
        process = run(["examples.kafka_changes", brokers, topic, str(tmp_path / "w"), "db.orders"], {})
        try:
            until(lambda ids=ids: len(source.rows()) == ids[-1])
        finally:
            process.kill()
            process.wait()
    assert sorted(row["id"] for row in source.rows()) == [1, 2, 3, 4, 5]
    assert program.OFFSETS in source.table.snapshot_manager().get_latest_snapshot().properties


# ---- a webhook ----


def test_a_webhook_gets_each_change_at_least_once_under_the_same_key(tmp_path: Path) -> None:
    source, program, random = SmallTable(tmp_path / "w"), load_example("changes_to_webhook"), seeded("webhook")
    received: list[tuple[str, dict[str, Any]]] = []
    answers: list[HTTPStatus | None] = []
    failures = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS, None)

    def receive(environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        status = answers.pop() if answers else random.choice([*[HTTPStatus.NO_CONTENT] * 3, *failures])
        if status is None or status is HTTPStatus.NO_CONTENT:
            body = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            received.append((environ["HTTP_IDEMPOTENCY_KEY"], body))
        if status is None:  # received, and the answer is lost
            raise ConnectionResetError
        start(f"{status.value} {status.phrase}", [("Content-Length", "0")])
        return []

    server = HttpServer(receive)
    server.start()
    try:
        for number in range(6):
            source.commit(*({"id": key, "number": number} for key in range(4)))
            builder = source.builder().with_consumer_id("webhook").with_start(snapshot_id=1)
            if number == 2:
                # The program ends inside of a snapshot, which comes again as a whole.
                answers[:] = [HTTPStatus.FORBIDDEN, HTTPStatus.NO_CONTENT]
                with builder.open_sync() as stream, pytest.raises(RuntimeError, match="403"):
                    run_forever(stream, program.Webhook(server.endpoint), attempts=1)
            with builder.open_sync() as stream:
                run_forever(stream, program.Webhook(server.endpoint), attempts=1, first_pause=0.001, longest_pause=0.01)
    finally:
        server.stop()
    by_key = dict(received)
    assert len(by_key) < len(received)
    assert all(by_key[key] == body for key, body in received)
    # In the order of their commits.
    assert [body["row"]["number"] for body in by_key.values()] == [number for number in range(6) for _ in range(4)]
    assert {(body["row"]["id"], body["row"]["number"]) for body in by_key.values()} == {*product(range(4), range(6))}


# ---- services ----


def run(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", *command], env={**os.environ, **environment}, cwd=ROOT)


def test_the_deployment_of_kubernetes_serves_rows_and_its_probes(tmp_path: Path) -> None:
    source = SmallTable(tmp_path / "w", name="db.orders")
    first = source.commit({"id": 1, "name": "one"})
    pod = yaml.safe_load((ROOT / "examples" / "kubernetes.yaml").read_text())["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    given = {each["name"]: each["value"] for each in container["env"]}
    assert given.keys() == {"PAIMON_WAREHOUSE", "PAIMON_TABLE"}
    given["PAIMON_WAREHOUSE"] = str(tmp_path / "w")
    command = [{"8000": port, "0.0.0.0": "127.0.0.1"}.get(word, word) for word in container["command"]]
    probes = [container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")]
    process = run(command, given)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:

            def answers(path: str) -> int:
                with suppress(httpx.TransportError):
                    return client.get(path).status_code
                return 0

            until(lambda: answers(probes[0]) == 200)
            assert [answers(path) for path in probes] == [200] * 3
            assert client.get("/rows/1").json()["name"] == "one"
            assert answers("/rows/2") == 404
            assert answers("/rows/x") == 422
            second = source.commit(("+U", {"id": 1, "name": "uno"}))
            until(lambda: client.get(probes[2]).json()["snapshot"] == second > first)
            assert client.get("/rows/1").json()["name"] == "uno"
            # Another table of the same name: the rows follow it no more, and only a restart helps.
            source.make_anew()
            source.commit({"id": 3})
            until(lambda: answers(probes[1]) == 503)
            assert answers("/rows/1") == answers(probes[2]) == 503
        process.send_signal(signal.SIGTERM)
        assert process.wait(pod["terminationGracePeriodSeconds"]) in (0, -signal.SIGTERM)
    finally:
        process.kill()
        process.wait()


def test_the_unit_of_systemd_copies_until_sigterm_and_continues(tmp_path: Path) -> None:
    unit = configparser.ConfigParser()
    unit.read(ROOT / "examples" / "paimon-copy.service")
    program, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "paimon-stream"
    source = SmallTable(tmp_path / "w", name="db.orders")
    environment = {"PAIMON_STREAM_WAREHOUSE": str(tmp_path / "w")}

    def copied() -> list[dict[str, Any]]:
        with (
            suppress(Exception),
            stream_read_builder(source.catalog.get_table("archive.orders")).with_end(latest=True).open_sync() as rows,
        ):
            return [row for batch in rows for row in batch.rows.to_pylist()]
        return []

    for number in (1, 2):
        source.commit({"id": number})
        process = run(["paimon_stream", *arguments], environment)
        try:
            until(lambda number=number: len(copied()) == number)
            process.send_signal(signal.SIGTERM)
            assert process.wait(int(unit["Service"]["TimeoutStopSec"])) == 0
        finally:
            process.kill()
            process.wait()
    source.make_anew()
    source.commit({"id": 3})
    # An error that needs a person does not restart the service.
    assert (
        str(run(["paimon_stream", *arguments], environment).wait(60))
        in unit["Service"]["RestartPreventExitStatus"].split()
    )
