"""`paimon-stream maintain`: what it prints and deletes, of one table and of several."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path

import pytest

from pypaimon.streaming import ConsumerManager
from pypaimon.streaming.consumers.consumer_manager import Consumer
from pypaimon.streaming.maintenance import create_tag
from support.docs.cli_runs import Program
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("table")]

LATEST_ONLY = ("--min-snapshots", "1", "--snapshot-age", "0s")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, "t").commit_each(range(3))


def test_a_dry_run_says_what_a_run_deletes(program: Program, table: Table) -> None:
    manager = ConsumerManager(table.handle().file_io, str(table.path))
    manager.reset_consumer("slow", Consumer(2))
    held = "consumer slow keeps 2 snapshots (1 to 2) that would expire otherwise; it reads snapshot 2 next"
    assert held in program("maintain", "db.t", *LATEST_ONLY, "--dry-run").out
    manager.delete_consumer("slow")
    planned = json.loads(program("maintain", "db.t", *LATEST_ONLY, "--dry-run", "--json").out)
    assert planned["snapshots"] == [1, 2] and planned["dry_run"] and table.ids() == [1, 2, 3]
    assert "db.t: deleted 2 snapshots (1 to 2)" in program("maintain", "db.t", *LATEST_ONLY).out
    assert table.ids() == [3]
    assert "nothing is due" in program("maintain", "db.*", *LATEST_ONLY).out
    assert "no table matches db.x*" in program("maintain", "db.x*").err


def test_it_compacts_first_where_it_is_asked_to(program: Program, table: Table) -> None:
    small = (*LATEST_ONLY, "--compact", "--table-option", "compaction.min.file-num=2")
    assert "would compact 3 files (" in program("maintain", "db.t", *small, "--dry-run").out
    assert table.ids() == [1, 2, 3]
    said = program("maintain", "db.t", *small).out
    assert "compacted 3 files (" in said and "deleted 3 snapshots (1 to 3)" in said and table.ids() == [4]
    assert json.loads(program("maintain", "db.t", *small, "--json").out)["compaction"]["files"] == 0


@pytest.mark.parametrize(
    "wrong",
    [("--every", "0s"), ("--every", "soon"), ("--orphans", "1h"), ("--young-orphans",), ("--min-snapshots", "0")],
    ids=" ".join,
)
def test_wrong_options_are_refused(program: Program, table: Table, wrong: tuple[str, ...]) -> None:
    assert program("maintain", "db.t", *wrong).code == 2
    assert table.ids() == [1, 2, 3]


def test_changelogs_and_tags_are_kept_if_the_command_says_so(program: Program, table: Table) -> None:
    create_tag(table.handle(), "old", retention=timedelta(0))
    assert json.loads(program("maintain", "db.t", *LATEST_ONLY, "--keep-tags", "--json").out)["tags"] == []
    assert table.ids() == [3]
    assert json.loads(program("maintain", "db.t", "--json").out)["tags"] == ["old"]
    table.commit([3])
    kept = json.loads(program("maintain", "db.t", *LATEST_ONLY, "--changelog-age", "1d", "--json").out)
    assert kept["snapshots"] == kept["kept_changelogs"] == [3]


def test_too_young_orphans_are_refused_in_words_of_the_command_line(program: Program, table: Table) -> None:
    said = program("maintain", "db.t", "--orphans", "1h").err
    assert "--orphans: 1:00:00 is less than a day" in said and "Give a day or more." in said
    assert "orphan_age" not in said and "young_orphans" not in said and "--young-orphans allows less" in said
    (table.path / "manifest" / "lost").write_bytes(b"12345")
    done = json.loads(program("maintain", "db.t", "--orphans", "0s", "--young-orphans", "--json").out)
    assert [each["kind"] for each in done["files"]] == ["orphan"] and not (table.path / "manifest" / "lost").exists()


def test_missing_files_are_removed_after_a_question(
    program: Program, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no data file is missing" in program("remove-missing-files", "db.t", "--yes").out
    lost = table.data_files()[0]
    lost.unlink()
    dry = json.loads(program("remove-missing-files", "db.t", "--dry-run", "--json").out)
    assert [Path(each).name for each in dry["files"]] == [lost.name] and dry["rows"] == 1 and dry["dry_run"]
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    asked = program("remove-missing-files", "db.t")
    assert asked.code == 130 and "would remove 1 missing file with 1 row" in asked.err and lost.name in asked.err
    assert table.latest() == 3
    assert "removed 1 missing file with 1 row" in program("remove-missing-files", "db.t", "--yes").out
    assert table.latest() == 4 and len(table.rows()) == 2


EXPIRING = ("--table-option", "snapshot.num-retained.min=2", "--table-option", "snapshot.time-retained=0s")


def test_commands_that_write_maintain_the_table_where_they_are_asked_to(
    program: Program, table: Table, tmp_path: Path
) -> None:
    table.commit_each(range(20))
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"k": 1, "v": "a"}\n')
    program("write", "db.t", str(rows), *EXPIRING)
    assert len(table.ids()) == 24
    program("write", "db.t", str(rows), "--maintain", *EXPIRING)
    assert table.ids()[0] > 20
    table.commit_each(range(20))
    program("compact", "db.t", "--maintain", "--dry-run", *EXPIRING)
    assert len(table.ids()) > 20
    program("compact", "db.t", "--maintain", *EXPIRING)
    assert table.ids() == [table.latest() - 1, table.latest()]


def test_a_copy_is_maintained(program: Program, table: Table, tmp_path: Path) -> None:
    options = {"snapshot__num_retained__min": "2", "snapshot__time_retained": "0s"}
    copies = Table(tmp_path, "copy", **options).commit_each(range(20))
    assert program("copy", "db.t", "db.copy", "--replace", "--maintain").code == 0
    assert len(copies.ids()) < 10
    refused = program("copy", "db.*", "--to-duckdb", str(tmp_path / "x.duckdb"), "--maintain")
    assert refused.code == 2 and "--maintain goes with --to-warehouse" in refused.err
