"""What `paimon-stream` shows, and what errors and logs say, holds no secrets; rows of tables come as they are."""

from __future__ import annotations

import json
import logging
import pickle
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paimon_stream import _code_of
from pypaimon.streaming import ConsumerManager, CorruptTableError, StreamConfigError
from pypaimon.streaming.catalog_endpoint import Endpoint
from pypaimon.streaming.cli.messages import ShownLines, keep_secret, say, shown
from pypaimon.streaming.cli.output import cell, print_result, to_json
from pypaimon.streaming.errors import StoreError
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.redaction import without_secrets
from support.docs.cli_runs import Program
from support.stores.fault_file_io import UNAVAILABLE, FaultFileIO, failing
from support.tables.streamed_table import Table

WHERE = "s3://user:PASS@bucket/x"
HIDDEN = "s3://***@bucket/x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (WHERE, HIDDEN),
        (f"waiting for {WHERE} (warehouse)", f"waiting for {HIDDEN} (warehouse)"),
        ("s3://user:PA/SS@bucket/x", HIDDEN),
        ("oss://id:se@cret@bucket/x", "oss://***@bucket/x"),
        ("postgresql://me:pw@host:5432/db", "postgresql://***@host:5432/db"),
        ("https://host/x?X-Amz-Signature=abc&y=1", "https://host/x?X-Amz-Signature=***&y=1"),
        ("--catalog-option 's3.secret-key=abc'", "--catalog-option 's3.secret-key=***'"),
        ("{'fs.oss.accessKeySecret': 'abc', 'a': 1}", "{'fs.oss.accessKeySecret': '***', 'a': 1}"),
        ('{"token": "abc"}', '{"token": "***"}'),
        ("host=h password=abc dbname=d", "host=h password=*** dbname=d"),
        ("s3.access-key=AK s3.endpoint=http://h:1/", "s3.access-key=*** s3.endpoint=http://h:1/"),
        *[(text, text) for text in ("http://localhost:9000/a@b", "hdfs://nn:8020/w/a@b", "unexpected token: abc")],
        *[(text, text) for text in ("give s3.access-key and s3.secret-key", "a row of me@host", "http://h:9000")],
    ],
)
def test_texts_hold_no_secrets_and_keep_the_rest(text: str, expected: str) -> None:
    assert without_secrets(text) == expected
    assert str(StreamConfigError(text)) == expected


@pytest.mark.slow
@given(st.text(st.characters(codec="utf-8", exclude_characters="*"), min_size=4).map(lambda text: quote(text, safe="")))
def test_no_password_of_a_uri_is_shown(password: str) -> None:
    text = f"no answer from s3://user:{password}@bucket/warehouse/db.db within 5 s"
    assert without_secrets(text) == "no answer from s3://***@bucket/warehouse/db.db within 5 s"


def test_errors_keep_the_path_for_programs() -> None:
    error = CorruptTableError(WHERE, "damaged")
    assert "PASS" not in f"{error} {error!r}"
    assert pickle.loads(pickle.dumps(error)).path == WHERE


def test_lines_of_logs_hold_no_secrets(caplog: pytest.LogCaptureFixture) -> None:
    files = FaultFileIO()
    files.wherever(failing(UNAVAILABLE))
    store = Store(files)
    store._common.sleep = lambda _: None
    with pytest.raises(StoreError, match=r"s3://\*\*\*@bucket") as caught:
        ConsumerManager(files, WHERE, store=store).delete_consumer("etl")
    assert HIDDEN in caplog.text and "PASS" not in caplog.text + str(caught.value)
    foreign = logging.LogRecord("urllib3", logging.WARNING, "x.py", 1, "at %s", (WHERE,), None)
    assert ShownLines("%(message)s").format(foreign) == f"at {HIDDEN}"


def test_records_and_texts_of_the_program_hold_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    record = {"path": WHERE, "options": {"s3.secret-key": "abc", "parts": ["token=abc", 1]}, "rows": 3}
    expected = {"path": HIDDEN, "options": {"s3.secret-key": "***", "parts": ["token=***", 1]}, "rows": 3}
    assert json.loads(to_json(record)) == expected
    assert cell(WHERE) == HIDDEN
    print_result(record, f"copied to {WHERE}", "text")
    say(f"waiting for {Endpoint.of({'metastore': 'jdbc', 'warehouse': WHERE})}")
    assert capsys.readouterr() == (f"copied to {HIDDEN}\n", f"paimon-stream: waiting for {HIDDEN} (warehouse)\n")


def test_secrets_of_the_catalog_are_hidden_whatever_repeats_them() -> None:
    keep_secret({"s3.secret-key": "Q1w2E3r4", "s3.access-key": "paimon-reader", "token": "test"})
    keep_secret({"warehouse": "s3://u:p%40ss-word@b/x", "s3.region": "eu-west-1"})
    assert shown("signed Q1w2E3r4 by p@ss-word in eu-west-1") == "signed *** by *** in eu-west-1"
    # Neither who somebody is, nor a word that anything may be called.
    assert shown("paimon-reader may not read test_orders") == "paimon-reader may not read test_orders"


def test_a_stack_that_is_asked_for_holds_no_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> int:
        raise OSError(f"cannot open {WHERE}")

    assert _code_of(run) == 1
    err = capsys.readouterr().err
    assert err.startswith("Traceback") and err.endswith(f"OSError: cannot open {HIDDEN}\n") and "PASS@" not in err


def test_wrong_usage_does_not_repeat_a_secret(program: Program) -> None:
    found = program("tail", "db.t", "-o", "s3.secret-key:Q1w2E3r4")
    assert found.code == 2 and "expected KEY=VALUE, got" in found.err and "Q1w2E3r4" not in found.err


@pytest.mark.slow
def test_rows_come_as_they_are(program: Program) -> None:
    Table(program.warehouse).commit([(1, f"token=abc {WHERE}")])
    found = program("tail", "db.t", "--until-latest", "-f", "json")
    assert [row["v"] for row in found.records] == [f"token=abc {WHERE}"]


@pytest.fixture
def program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(tmp_path, capsys)
