"""`paimon-stream partitions`: what it prints, drops and marks."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from support.docs.cli_runs import Program
from support.tables.streamed_table import Table

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("table")]

COLUMNS = pa.schema([("p", pa.string()), ("h", pa.int32()), ("k", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    table = Table(tmp_path, "t", columns=COLUMNS, partition_keys=["p", "h"])
    for number, partition in enumerate([("2020-01-01", 1), ("2020-01-01", 2), ("a/b", 3), (None, 4)]):
        table.commit([(*partition, number)])
    return table


def test_partitions_are_listed_dropped_and_marked(program: Program, table: Table) -> None:
    listed = [json.loads(line) for line in program("partitions", "list", "db.t", "--format", "json").out.splitlines()]
    days = ["p=2020-01-01/h=1", "p=2020-01-01/h=2"]
    assert [each["partition"] for each in listed] == [*days, "p=__DEFAULT_PARTITION__/h=4", "p=a/b/h=3"]
    assert listed[2]["values"] == {"p": None, "h": "4"} and listed[0]["records"] == 1
    assert "p=a/b/h=3" in program("partitions", "list", "db.t").out
    dry = program("partitions", "drop", "db.t", "p=2020-01-01", "--dry-run").out
    assert "would drop 2 partitions (p=2020-01-01/h=1, p=2020-01-01/h=2)" in dry and len(table.rows()) == 4
    dropped = program("partitions", "drop", "db.t", "p=2020-01-01", "p=a/b/h=3", "--yes", "--format", "json").out
    assert json.loads(dropped)["snapshot"] == 5 and table.rows() == [(None, 4, 3)]
    assert "dropped 0 partitions" in program("partitions", "drop", "db.t", "p=2020-01-01", "--yes").out
    assert table.latest() == 5
    assert "marked 1 partition" in program("partitions", "mark-done", "db.t", "p=a/b/h=3").out
    assert [path.parent.name for path in table.path.rglob("_SUCCESS")] == ["h=3"]


ODD = [("a/b=c", 1), ("a=b,c=d", 2), ("x/h=9", 3), (None, 4), ("{}", 5), ("a, h", 6), ("[/x] :smile:", 7)]


def test_what_is_listed_names_the_same_partitions(program: Program, tmp_path: Path) -> None:
    """With any separators in values, and null in the word of the table."""
    table = Table(tmp_path, "odd", columns=COLUMNS, partition_keys=["p", "h"], partition__default_name="nothing")
    for number, partition in enumerate(ODD):
        table.commit([(*partition, number)])
    listed = [json.loads(line) for line in program("partitions", "list", "db.odd", "--format", "json").out.splitlines()]
    assert "p=[/x] :smile:/h=7 " in program("partitions", "list", "db.odd").out
    of_null = next(each for each in listed if each["values"]["p"] is None)
    assert of_null["partition"] == "p=nothing/h=4"
    assert "(p=nothing/h=4)" in program("partitions", "drop", "db.odd", "p=nothing", "--dry-run").out
    for each in listed:
        text = each["partition"]
        if each["values"]["p"] == "x/h=9":
            assert "'h' is named twice" in program("partitions", "drop", "db.odd", text, "--yes").err
            text = json.dumps(each["values"])
        dropped = program("partitions", "drop", "db.odd", text, "--yes", "--format", "json").out
        assert json.loads(dropped)["partitions"] == [each["values"]]
    assert not table.rows()


@pytest.mark.parametrize(
    "wrong",
    [
        ("drop", "db.t", "q=1"),
        ("drop", "db.t", "h=x"),
        ("drop", "db.t", "p"),
        ("mark-done", "db.t", "p=x"),
        ("drop", "db.t", "p=x/huor=1"),
        ("drop", "db.t", "{"),
    ],
)
def test_wrong_partitions_are_refused(program: Program, table: Table, wrong: tuple[str, ...]) -> None:
    assert program("partitions", *wrong).code == 2
    assert table.latest() == 4


def test_maintain_drops_by_age_and_merges_manifests(program: Program, table: Table) -> None:
    asked = ("maintain", "db.t", "--partition-age", "90d", "--rewrite-manifests")
    planned = program(*asked, "--dry-run").out
    assert "would delete 2 partitions (p=2020-01-01/h=1, p=2020-01-01/h=2)" in planned
    assert "would merge 4 manifests" in planned and table.latest() == 4
    assert "nothing is due" in program(*asked[:4], "--keep-partitions").out
    done = json.loads(program(*asked, "--json").out)
    assert done["dropped"] == done["partitions"] == [{"p": "2020-01-01", "h": "1"}, {"p": "2020-01-01", "h": "2"}]
    assert len(table.rows()) == 2 and table.latest() == 6
