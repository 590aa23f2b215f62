"""The first hour: what is typed first, and wrong first steps, which end in one sentence that says what to do."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import catalog_endpoint, example_tables, open_table, stream_read_builder
from pypaimon.streaming.errors import OpenTableError, StoreError, StreamConfigError
from support import programs
from support.docs.cli_runs import Program
from support.docs.doc_pages import DOCS, blocks
from support.docs.first_hours import HOURS, Hour
from support.repository import ROOT
from support.stores.rest_server import RestServer
from support.stores.s3_server import BUCKET, S3Server
from support.tables.orders import catalog, change, create_orders, events, orders

EXAMPLES = [path for path in sorted((ROOT / "examples").glob("*.py")) if path.stem != "spark_pipeline"]
LIMIT = 15.0


# ---- First steps


def test_the_example_tables_are_made_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example_tables.main([str(tmp_path)])
    assert capsys.readouterr().out.split() == ["db.orders", "db.events"]
    assert example_tables.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == "db.orders exists already\ndb.events exists already\n"
    assert catalog(tmp_path).get_table("db.orders").snapshot_manager().get_latest_snapshot().id == 4


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_without_arguments_says_how_it_is_run(example: Path) -> None:
    found = programs.run([sys.executable, str(example)], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (1, "")
    assert f"python examples/{example.name} " in found.stderr and "Traceback" not in found.stderr


@pytest.mark.parametrize("role", HOURS)
def test_a_role_types_what_the_pages_say(role: str) -> None:
    assert [step.code() for step in HOURS[role]]


@pytest.mark.nightly
@pytest.mark.parametrize("role", HOURS)
def test_the_first_hour_of_a_role(role: str, tmp_path: Path) -> None:
    """From a clone of the last commit to the end, in less than an hour; what was typed, and what came, is printed."""
    begun = time.monotonic()
    Hour(tmp_path, lambda text: print(text, end="")).run(HOURS[role])
    assert time.monotonic() - begun < 3600


@pytest.mark.server
@pytest.mark.nightly
def test_the_first_program_survives_an_outage(server: S3Server) -> None:
    """The quick start on S3: the store fails until the program says so, after a minute; then the next change comes."""
    found = server.catalog("quick")
    found.create_database("db", True)
    table = orders(found)
    program = next(block.text for block in blocks(DOCS / "index.md") if "asyncio.run(" in block.text)
    options = {"warehouse": f"s3://{BUCKET}/quick", **server.options()}
    text = program.replace('{"warehouse": "/path/to/warehouse"}', repr(options))
    assert text != program
    with programs.Popen(
        [sys.executable, "-u", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None and running.stderr is not None
        assert "'status': 'paid'" in running.stdout.readline()
        with server.failing("snapshot", *[503] * 10_000):
            while "continues after a pause" not in (line := running.stderr.readline()):
                assert line
        change(table, "+I", (3, "placed", 2.0))
        assert "'id': 3" in running.stdout.readline()
        running.kill()


# ---- Wrong first steps


@pytest.fixture(autouse=True)
def no_keys_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture(scope="module")
def free_port() -> int:
    """A port at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.fixture(scope="module")
def store(server: S3Server) -> S3Server:
    found = server.catalog("first")
    found.create_database("db", True)
    create_orders(found)
    return server


Step = Callable[[S3Server, int], dict[str, str | None]]
STEPS: dict[str, tuple[Step, type[Exception], str]] = {
    "endpoint, nothing listens": (
        lambda store, port: {"s3.endpoint": f"http://127.0.0.1:{port}"},
        StoreError,
        "(s3.endpoint) cannot be reached: Connection refused; correct s3.endpoint, or start what serves there",
    ),
    "endpoint, no such host": (
        lambda store, port: {"s3.endpoint": "http://store.invalid:9000"},
        StoreError,
        "http://store.invalid:9000 (s3.endpoint) cannot be reached: ",
    ),
    "endpoint, without http://": (
        lambda store, port: {"s3.endpoint": store.endpoint.removeprefix("http://")},
        StoreError,
        "it does not speak TLS; give s3.endpoint as http://127.0.0.1:",
    ),
    "endpoint, no address": (
        lambda store, port: {"s3.endpoint": "http://127.0.0.1:99999"},
        StreamConfigError,
        "s3.endpoint=http://127.0.0.1:99999: give an address like http://localhost:9000",
    ),
    "endpoint, empty": (
        lambda store, port: {"s3.endpoint": ""},
        StreamConfigError,
        "s3.endpoint=: give an address like http://localhost:9000",
    ),
    "endpoint, another kind": (
        lambda store, port: {
            "s3.endpoint": store.endpoint.replace("127.0.0.1", "localhost"),
            "s3.path-style-access": None,
        },
        StoreError,
        "there is no host lake.localhost; set s3.path-style-access=true",
    ),
    "bucket": (
        lambda store, port: {"warehouse": "s3://no-lake/first"},
        OpenTableError,
        "table db.orders does not exist: there is no bucket s3://no-lake",
    ),
    "no bucket": (
        lambda store, port: {"warehouse": "s3:/lake/first"},
        StreamConfigError,
        "warehouse=s3:/lake/first: names no bucket; give s3://BUCKET/DIRECTORY",
    ),
    "key": (
        lambda store, port: {"s3.access-key": "another"},
        OpenTableError,
        "; check the credentials and their permissions",
    ),
    "no keys": (
        lambda store, port: {"s3.access-key": None, "s3.secret-key": None},
        OpenTableError,
        "no credentials were given: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or s3.access-key and",
    ),
    "half a key": (
        lambda store, port: {"s3.access-key": None, "s3.acces-key": "a"},
        StreamConfigError,
        "give s3.access-key. There is no option 's3.acces-key'. Did you mean 's3.access-key'?",
    ),
    "metastore, Hive": (
        lambda store, port: {"metastore": "hive", "uri": "thrift://127.0.0.1:9083"},
        StreamConfigError,
        "pypaimon has no client for a Hive metastore; leave out metastore and uri, and give as warehouse",
    ),
    "metastore, unknown": (
        lambda store, port: {"metastore": "rst"},
        StreamConfigError,
        "metastore=rst: pypaimon has no such catalog; give filesystem, jdbc, rest. Did you mean 'rest'?",
    ),
    "REST, no uri": (
        lambda store, port: {"metastore": "rest"},
        StreamConfigError,
        "metastore=rest: give the address of the catalog's server as uri",
    ),
    "REST, no token": (
        lambda store, port: {"metastore": "rest", "uri": store.endpoint},
        StreamConfigError,
        "metastore=rest: give token.provider, either bear with a token, or dlf with its keys",
    ),
    "REST, nothing listens": (
        lambda store, port: {"metastore": "rest", "uri": f"http://127.0.0.1:{port}", **BEARER},
        StoreError,
        "(uri) cannot be reached: Connection refused; correct uri, or start what serves there",
    ),
    "REST, nothing listens, without http://": (
        lambda store, port: {"metastore": "rest", "uri": f"127.0.0.1:{port}", **BEARER},
        StoreError,
        "(uri) cannot be reached: Connection refused; correct uri, or start what serves there",
    ),
    "REST, another server": (
        lambda store, port: {"metastore": "rest", "uri": store.endpoint, **BEARER},
        OpenTableError,
        "(uri) ",
    ),
    "warehouse, missing": (lambda store, port: {"warehouse": None}, StreamConfigError, "the catalog has no warehouse"),
    "warehouse, unknown store": (
        lambda store, port: {"warehouse": "abfss://lake@x.net/first"},
        StreamConfigError,
        "pypaimon reads no 'abfss' stores, but file, s3, s3a, s3n, oss, hdfs, viewfs, gs",
    ),
    "missing extra": (
        lambda store, port: {"warehouse": "hdfs://127.0.0.1:1/first"},
        StreamConfigError,
        "pip install 'pypaimon[hdfs]'",
    ),
    "OSS, no endpoint": (
        lambda store, port: {"warehouse": "oss://lake/first"},
        StreamConfigError,
        "give the store's address as fs.oss.endpoint",
    ),
}
BEARER = {"token.provider": "bear", "token": "anybody"}


@pytest.fixture
def refusing(store: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    monkeypatch.setattr(store, "keys", {"an-access-key": None})
    return store


def options_of(name: str, store: S3Server, port: int) -> dict[str, str]:
    options = {"warehouse": f"s3://{BUCKET}/first", **store.options(), **STEPS[name][0](store, port)}
    return {key: value for key, value in options.items() if value is not None}


@pytest.mark.server
@pytest.mark.parametrize("name", STEPS)
def test_a_wrong_first_step_ends_in_a_sentence(
    name: str, refusing: S3Server, free_port: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a program, and on the command line."""
    options, (_, kind, text) = options_of(name, refusing, free_port), STEPS[name]
    begun = time.monotonic()
    with pytest.raises(kind) as caught:
        open_table("db.orders", options)
    assert text in str(caught.value) and "\n" not in str(caught.value)
    given = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    found = Program(tmp_path, capsys).bare("lag", "db.orders", *given)
    assert found.code == {StreamConfigError: 2, StoreError: 75}.get(kind, 1)
    *_, line = found.err.splitlines()
    assert line.startswith("paimon-stream: ") and text in line and "Traceback" not in found.err
    assert time.monotonic() - begun < 2 * LIMIT


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "extra", "code"),
    [
        ("torch", "torch", "from pypaimon.streaming.feeds import TorchFeed"),
        ("ray", "ray", "from pypaimon.streaming.feeds import RayFeed"),
        ("deltalake", "delta", "from pypaimon.streaming import DeltaTarget; DeltaTarget('/tmp/t', keys='id')"),
        ("opentelemetry", "otel", "from pypaimon.streaming.telemetry import StreamMetrics; StreamMetrics()"),
        ("pyspark", "spark", "from pypaimon.spark import register"),
    ],
    ids=lambda value: value.partition(" ")[0],
)
def test_a_missing_extra_is_named(package: str, extra: str, code: str) -> None:
    hidden = f"import sys; sys.modules[{package!r}] = None; {code}"
    found = programs.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    *_, line = found.stderr.splitlines()
    assert package in line and f"pip install 'pypaimon-streaming[{extra}]'" in line
    assert found.returncode != 0


def test_make_names_the_pythons_that_will_do(tmp_path: Path) -> None:
    make = shutil.which("make")
    assert make
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    command = [make, "--no-print-directory", "-C", tmp_path, "demo"]
    found = subprocess.run(command, env={"PATH": str(tmp_path / "bin")}, capture_output=True, text=True)
    assert found.returncode == 2
    *_, told, ended = found.stderr.splitlines()
    assert told == "Python 3.10, 3.11, 3.12, 3.13 or 3.14 with its venv module is needed; none was found."
    assert ended.startswith("make: *** ")


def test_a_server_that_waits_for_a_line_does_not_speak_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_endpoint, "_LOOK_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreError, match=f"it does not speak TLS; give s3.endpoint as http://{address}"):
            open_table("db.t", {"warehouse": "s3://b/w", "s3.endpoint": address})


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("orders", {"warehouse": "w"}, "names no database: give 'database.table'"),
        ("db.", {"warehouse": "w"}, "names no database: give 'database.table'"),
        (("db", "orders"), {"warehouse": "w"}, "name: expected a name (str), got"),
        ("db.orders", "warehouse", "options: expected a mapping of the catalog's options, got 'warehouse'"),
    ],
)
def test_a_wrong_argument_is_named(name: Any, options: Any, text: str) -> None:
    with pytest.raises(StreamConfigError, match=re.escape(text)):
        open_table(name, options)


@pytest.mark.server
def test_another_region_is_named(store: S3Server) -> None:
    with (
        store.failing("first", *[301] * 50),
        pytest.raises(OpenTableError, match=r"another region; correct s3\.region"),
    ):
        open_table("db.orders", {"warehouse": f"s3://{BUCKET}/first", **store.options()})


@pytest.mark.server
def test_a_store_that_does_not_answer_is_given_up(store: S3Server) -> None:
    text = r"no answer from .* within 0\.2 s: it accepts connections, but does not answer"
    with store.failing("first", "hang"), pytest.raises(StoreError, match=text):
        open_table("db.orders", {"warehouse": f"s3://{BUCKET}/first", **store.options()}, connect_timeout=0.2)


@pytest.mark.server
def test_tables_of_stores_and_catalogs_are_opened(store: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """With keys of the environment, and through a REST catalog."""
    options = store.options()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", options.pop("s3.access-key"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", options.pop("s3.secret-key"))
    monkeypatch.setattr(store, "keys", {"an-access-key": None})
    table = open_table("db.orders", {"warehouse": f"s3://{BUCKET}/first", **options})
    assert repr(stream_read_builder(table)) == "StreamReadBuilder(db.orders)"
    rest = RestServer(store, events(store.catalog("first"), commits=0), lambda: time.time_ns() // 1_000_000)
    try:
        assert open_table("db.t", rest.options).table_schema.id == 0
    finally:
        rest.stop()
