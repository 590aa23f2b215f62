"""What Java does behind a commit, and this library does not: a line of the log says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import compact
from pypaimon.streaming.writing.writable_tables import left_out
from support.tables.handles import write_with
from support.tables.written_tables import key_value_table, rows

ASKED = {
    "snapshot.time-retained": "2 h",
    "tag.automatic-creation": "process-time",
    "partition.expiration-time": "7 d",
    "commit.callbacks": "org.example.Callback",
    "metadata.iceberg.storage": "disabled",
    "metastore.partitioned-table": "false",
}


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    told = (each.paimon for each in caplog.records if hasattr(each, "paimon"))
    return [each for each in told if each["event"] == "upkeep_left_out"]


def test_writers_of_a_process_log_once_what_they_do_not_do(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = key_value_table(tmp_path, **ASKED)
    for key in range(2):
        write_with(table.writer(), rows(key))
    assert lines(caplog) == [
        {
            "event": "upkeep_left_out",
            "table": "db.w",
            "options": "snapshot.time-retained (run maintain or paimon-stream maintain), tag.automatic-creation "
            "(run maintain or paimon-stream maintain), partition.expiration-time (run maintain or paimon-stream "
            "maintain), "
            "commit.callbacks (have Java commit)",
        }
    ]


def test_of_a_write_only_table_java_leaves_the_upkeep_to_others_too(tmp_path: Path) -> None:
    table = key_value_table(tmp_path, **ASKED, **{"write-only": "true"})
    assert left_out(table.options) == "commit.callbacks (have Java commit)"


CALLED = {
    "tag.callbacks": "org.example.TagCallback",
    "visibility-callback.enabled": "true",
    "commit.custom-listeners": "listener",
    "partition.idle-time-to-done": "1 h",
    "partition.end-input-to-done": "true",
    "tag.create-success-file": "false",
    "partition.idle-time-to-report-statistic": "0 s",
}


def test_callbacks_of_commits_are_reported_for_compactions_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = key_value_table(tmp_path, **CALLED)
    for _ in range(2):
        compact(table.handle())
    ((line),) = lines(caplog)
    assert [each.split(" (")[0] for each in line["options"].split("), ")] == [
        "tag.callbacks", "partition.idle-time-to-done", "commit.custom-listeners", "visibility-callback.enabled",
        "partition.end-input-to-done",
    ]  # fmt: skip


def test_a_table_that_asks_for_nothing_gets_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_with(key_value_table(tmp_path).writer(), rows(1))
    assert lines(caplog) == []
