"""`paimon-stream` and a catalog that is missing, does not answer, or refuses: the cause and the exit code."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any

import click
import pytest

from pypaimon.streaming import catalog_access
from pypaimon.streaming.catalog_endpoint import Endpoint
from pypaimon.streaming.cli import connectivity
from support import programs
from support.docs.cli_runs import PROGRAM, Outcome, Program
from support.stores.s3_server import BUCKET, S3Server
from support.tables.orders import create_orders

pytestmark = pytest.mark.server


@pytest.fixture(autouse=True)
def no_keys_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def tables(server: S3Server) -> Any:
    catalog = server.catalog("there")
    catalog.create_database("db", True)
    create_orders(catalog)
    return catalog


class Remote:
    """Runs `lag` on a table of the server."""

    def __init__(self, program: Program, server: S3Server) -> None:
        self._program = program
        self._server = server

    def __call__(self, table: str, *arguments: str, warehouse: str = f"{BUCKET}/there", keys: bool = True) -> Outcome:
        options = {
            key: value
            for key, value in self._server.options().items()
            if keys or key not in ("s3.access-key", "s3.secret-key")
        }
        given = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
        return self._program.bare(*given, "-w", f"s3://{warehouse}", "lag", table, *arguments)


@pytest.fixture
def lag(tmp_path: Path, capsys: pytest.CaptureFixture[str], server: S3Server, tables: Any) -> Remote:
    return Remote(Program(tmp_path, capsys), server)


@pytest.mark.parametrize(
    ("table", "warehouse", "message"),
    [
        ("db.orders", "no-lake/there", "table db.orders does not exist: there is no bucket s3://no-lake"),
        ("db.orders", f"{BUCKET}/here", f"table db.orders does not exist: there is no warehouse s3://{BUCKET}/here"),
        (
            "dbs.orders",
            f"{BUCKET}/there",
            "table dbs.orders does not exist: there is no database dbs; the warehouse has db",
        ),
        ("db.oders", f"{BUCKET}/there", "table db.oders does not exist; db has orders"),
    ],
)
def test_says_what_is_missing(lag: Remote, table: str, warehouse: str, message: str) -> None:
    found = lag(table, warehouse=warehouse)
    assert (found.code, found.out, found.err) == (1, "", f"paimon-stream: {message}\n")


def test_says_what_refuses_and_that_no_credentials_were_given(
    lag: Remote, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lag("db.orders").code == 0
    monkeypatch.setattr(server, "keys", {"another-key": None})
    refused = lag("db.orders")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert refused.err.startswith(f"paimon-stream: {server.endpoint} (s3.endpoint) refuses: ")
    assert refused.err.endswith("; check the credentials and their permissions\n")
    nobody = lag("db.orders", keys=False)
    assert nobody.code == 1
    assert "ACCESS_DENIED" in nobody.err
    assert "no credentials were given: set AWS_ACCESS_KEY_ID" in nobody.err


def test_says_whom_it_waits_for_and_gives_up(lag: Remote, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_access, "_SILENT_SECONDS", 0.05)
    problem = f"{server.endpoint} (s3.endpoint)"
    with server.failing("schema", "hang"):
        found = lag("db.orders", "--connect-timeout", "0.5")
    for thread in threading.enumerate():
        if thread.name == "paimon-contact":
            thread.join()
    assert found.code == 75
    assert found.err.splitlines() == [
        f"paimon-stream: waiting for {problem} (at most 0.5 s): it accepts connections, but does not answer",
        f"paimon-stream: no answer from {problem} within 0.5 s: it accepts connections, but does not answer",
    ]


def test_tail_waits_on_if_it_is_asked_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], server: S3Server, tables: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = click.echo

    def comes_back(text: str, **settings: Any) -> None:
        echo(text, **settings)
        if text.endswith("; waiting on"):
            server.go_on.set()

    monkeypatch.setattr(click, "echo", comes_back)
    given = [word for key, value in server.options().items() for word in ("-o", f"{key}={value}")]
    tail = ("tail", "db.orders", "--until-latest", "--connect-timeout", "0.5", "--retry")
    with server.failing("schema", "hang"):
        found = Program(tmp_path, capsys).bare("-w", f"s3://{BUCKET}/there", *given, *tail)
    assert found.code == 0
    assert found.err.startswith(f"paimon-stream: no answer from {server.endpoint} (s3.endpoint) within 0.5 s")


def test_says_that_a_request_hangs_in_the_middle(
    lag: Remote, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectivity, "_HANG_SECONDS", 0.2)
    echo = click.echo

    def comes_back(text: str, **settings: Any) -> None:
        echo(text, **settings)
        server.go_on.set()

    monkeypatch.setattr(click, "echo", comes_back)
    with server.failing("consumer", "hang"):
        found = lag("db.orders")
    assert found.code == 0
    assert found.err.startswith(
        f"paimon-stream: waiting for {server.endpoint} (s3.endpoint): a request has not returned"
    )


def test_a_listing_that_hangs_does_not_hold_up_the_end(server: S3Server, tables: Any) -> None:
    given = [word for key, value in server.options().items() for word in ("-o", f"{key}={value}")]
    command = [*PROGRAM, "-w", f"s3://{BUCKET}/there", *given, "doctor", "db.orders"]
    with server.failing("snapshot", "hang"):
        program = programs.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert server.hanging.wait(60)
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
        program.communicate()


def test_a_dead_endpoint_ends_it_soon(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    options = [f"s3.endpoint=http://somebody:secret@127.0.0.1:{port}", "s3.access-key=a", "s3.secret-key=b"]
    given = [word for option in options for word in ("-o", option)]
    command = [*PROGRAM, "-w", "s3://lake/wh", *given, "lag", "db.orders", "--connect-timeout", "0.5"]
    # The client would retry for a minute and more, and the exit of the interpreter would wait for it.
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (result.returncode, result.stdout) == (75, "")
    place = f"http://127.0.0.1:{port} (s3.endpoint)"
    remedy = "correct s3.endpoint, or start what serves there"
    text = f"paimon-stream: {place} cannot be reached: Connection refused; {remedy}\n"
    assert result.stderr == text


@pytest.mark.parametrize(
    ("options", "address"),
    [
        ({"s3.endpoint": "minio:9000", "warehouse": "s3://w"}, "https://minio:9000 (s3.endpoint)"),
        ({"metastore": "rest", "uri": "http://u:p@rest:8080/x", "warehouse": "w"}, "http://rest:8080 (uri)"),
        ({"warehouse": "/data"}, "/data (warehouse)"),
    ],
)
def test_names_the_option_that_names_the_endpoint(options: dict[str, str], address: str) -> None:
    assert str(Endpoint.of(options)) == address
