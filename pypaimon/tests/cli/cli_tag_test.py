"""`paimon-stream tag`, and automatic tags of `paimon-stream maintain`: what they print and do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.docs.cli_runs import Program
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("table")]

LATEST_ONLY = ("--min-snapshots", "1", "--snapshot-age", "0s")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path, "t").commit_each(range(3))


def test_the_life_of_a_tag(program: Program, table: Table) -> None:
    assert program("tag", "create", "db.t", "v1", "--snapshot", "1", "--retention", "30d").out == (
        "db.t: tag v1 keeps snapshot 1\n"
    )
    assert program("tag", "create", "db.t", "new", "--json").records[0]["snapshot"] == 3
    assert "tag v1 is first now" in program("tag", "rename", "db.t", "v1", "first").out
    listed = {each["tag"]: each for each in program("tag", "list", "db.t", "--json").records}
    assert {name: each["snapshot"] for name, each in listed.items()} == {"first": 1, "new": 3}
    assert listed["first"]["expires"] > listed["first"]["created"] and listed["new"]["expires"] is None
    lines = program("tag", "list", "db.t").lines
    assert lines[0].split() == ["tag", "snapshot", "commit", "time", "watermark", "created", "expires"]
    assert "unknown" not in "".join(lines) and len(lines) == 3
    assert "created 1 tag (new of snapshot 2)" in program("tag", "replace", "db.t", "new", "--snapshot", "2").out
    program("maintain", "db.t", *LATEST_ONLY)
    dry = program("tag", "delete", "db.t", "first", "new", "--dry-run", "--json").records[0]
    assert dry["tags"] == ["first", "new"] and dry["files"] and dry["dry_run"]
    assert "db.t: deleted 2 tags (first, new); " in program("tag", "delete", "db.t", "first", "new").out
    assert "has no tags" in program("tag", "list", "db.t").err


@pytest.mark.parametrize(
    "wrong",
    [
        ("create", "v1"), ("create", "v2", "--snapshot", "9"), ("create", "v2", "--retention", "soon"),
        ("create", "v2", "--time", "yesterday"), ("delete", "v2"), ("rename", "v2", "v3"), ("replace", "v2"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_what_is_wrong_is_refused(program: Program, table: Table, wrong: tuple[str, ...]) -> None:
    program("tag", "create", "db.t", "v1")
    command, *arguments = wrong
    outcome = program("tag", command, "db.t", *arguments)
    assert (outcome.code, len(outcome.err.splitlines())) in ((2, 1), (2, 4)), outcome.err
    assert [path.name for path in (table.path / "tag").glob("*")] == ["tag-v1"]


def test_maintenance_says_which_tags_it_creates(program: Program, table: Table) -> None:
    option = ("--table-option", "tag.automatic-creation=batch", "--table-option", "tag.batch.customized-name=last")
    assert "would create 1 tag (last of snapshot 3)" in program("maintain", "db.t", *option, "--dry-run").out
    assert program("maintain", "db.t", *option).out == "db.t: created 1 tag (last of snapshot 3)\n"
    assert "nothing is due" in program("maintain", "db.t", *option).out
    table.commit([4])
    found = json.loads(program("maintain", "db.t", *option, *LATEST_ONLY, "--json").out)
    assert found["created_tags"] == [{"name": "last", "snapshot": 4}] and found["tags"] == []
