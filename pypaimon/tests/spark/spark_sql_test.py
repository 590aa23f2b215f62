"""SQL that people try on real Spark: it works, or ends in an error, and what the page says to use instead works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, UnsupportedOperationException

from pypaimon.streaming.testing import SmallTable
from support.docs.doc_pages import DOCS

pytestmark = pytest.mark.spark

Rows = list[tuple[Any, ...]]
OURS = r"INSERT INTO name WITH \(.* CREATE TABLE \.\.\. AS SELECT: write the rows with option 'create-table' = 'true'"
NO_TRAVEL = "UNSUPPORTED_FEATURE.TIME_TRAVEL"
REFUSED: dict[str, list[tuple[str, str]]] = {
    "`SELECT ... VERSION AS OF`, `TIMESTAMP AS OF`": [
        ("SELECT * FROM entry VERSION AS OF 1", NO_TRAVEL),
        ("SELECT * FROM changes TIMESTAMP AS OF '2026-01-01'", NO_TRAVEL),
    ],
    "``SELECT ... FROM pypaimon.`/path` ``": [
        ("SELECT * FROM pypaimon.`{path}`", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY")
    ],
    "`CREATE TABLE ... AS SELECT`, `CREATE TABLE ... (columns)`": [
        ("CREATE TABLE made USING pypaimon OPTIONS ({new}) AS SELECT 1L AS k, 'x' AS v", OURS),
        ("SELECT * FROM with_columns", r"'table' is missing: .* CREATE TABLE name USING pypaimon .*, without columns"),
    ],
    "`INSERT` without `WITH`": [
        ("INSERT INTO entry VALUES (9, 'x')", OURS),
        ("INSERT OVERWRITE entry VALUES (9, 'x')", OURS),
    ],
    "`DELETE`, `UPDATE`, `MERGE`": [
        ("DELETE FROM entry WHERE k = 1", "does not support deletes"),
        ("UPDATE entry SET v = 'z' WHERE k = 1", "does not support UPDATE TABLE"),
        (
            "MERGE INTO entry USING changes ON entry.k = changes.k WHEN MATCHED THEN DELETE",
            "does not support MERGE INTO TABLE",
        ),
    ],
    "`TRUNCATE`": [("TRUNCATE TABLE entry", "does not support truncates")],
    "`ALTER TABLE`": [("SELECT * FROM altered", "the table has none.*create the entry of Spark")],
}
"""Statements with the error in which each ends, by the row of the page that says what to use."""


class World:
    """A keyed table of two snapshots, an entry of Spark's catalog and a view of its changes."""

    def __init__(self, spark: Any, warehouse: Path) -> None:
        self.spark, self.warehouse = spark, warehouse
        columns = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
        table = SmallTable(warehouse, "k", columns)
        table.commit({"k": 1, "v": "a"}, {"k": 2, "v": "a"})
        table.commit({"k": 1, "v": "b"})
        self.path = table.table.table_path
        self.place = f"warehouse = '{warehouse}', table = '{table.name}'"

    def run(self, statement: str) -> Rows:
        new = f"warehouse = '{self.warehouse}', table = 'db.made', `create-table` = 'true'"
        text = statement.format(place=self.place, new=new, path=self.path, warehouse=self.warehouse)
        return sorted(tuple(row) for row in self.spark.sql(text).collect())


MADE = {
    "TABLE entry": "CREATE TABLE entry USING pypaimon OPTIONS ({place}, mode = 'rows')",
    "TABLE altered": "CREATE TABLE altered USING pypaimon OPTIONS ({place})",
    "TABLE with_columns": "CREATE TABLE with_columns (k BIGINT) USING pypaimon OPTIONS ({place})",
    "VIEW changes": "CREATE TEMPORARY VIEW changes USING pypaimon OPTIONS ({place})",
}


@pytest.fixture(scope="module")
def world(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(spark, tmp_path_factory.mktemp("sql") / "warehouse")
    for statement in MADE.values():
        world.run(statement)
    world.run("ALTER TABLE altered ADD COLUMNS (z INT)")
    yield world
    for name in MADE:
        world.run(f"DROP {name}")


def test_the_page_says_what_to_use_for_each_that_is_refused() -> None:
    page = (DOCS / "spark.md").read_text(encoding="utf-8")
    table = page.partition("| SQL | use |\n|---|---|\n")[2].partition("\n\n")[0]
    assert re.findall(r"^\| (.+?) \|", table, re.MULTILINE) == list(REFUSED)


@pytest.mark.parametrize(("statement", "error"), [each for rows in REFUSED.values() for each in rows])
def test_what_spark_does_not_hand_on_is_an_error(world: World, statement: str, error: str) -> None:
    with pytest.raises((AnalysisException, UnsupportedOperationException), match=f"(?s){error}"):
        world.run(statement)


def test_what_to_use_instead(world: World) -> None:
    run = world.run
    assert run("SELECT k, v FROM entry WITH (`scan.version` = '1')") == [(1, "a"), (2, "a")]
    assert run("SELECT k, v FROM entry WITH (`scan.timestamp` = '2999-01-01 00:00:00')") == [(1, "b"), (2, "a")]
    run("CREATE TABLE located USING pypaimon LOCATION '{path}'")
    assert run("SELECT k, v FROM located") == [(1, "b"), (2, "a")]
    run("DROP TABLE located")
    rows = world.spark.sql("SELECT k, v FROM entry")
    new = {"warehouse": str(world.warehouse), "table": "db.made", "create-table": "true"}
    rows.write.format("pypaimon").options(**new).mode("append").save()
    run("CREATE TABLE made USING pypaimon OPTIONS (warehouse = '{warehouse}', table = 'db.made')")
    assert run("SELECT * FROM made") == [(1, "b"), (2, "a")]
    run("DROP TABLE made")
    run("INSERT INTO changes SELECT '-D', k, v FROM changes WHERE k = 2")
    run("INSERT INTO changes SELECT '+U', k, 'c' FROM changes WHERE k = 1")
    run("INSERT INTO entry WITH ({place}) VALUES (3, 'd')")
    assert run("SELECT k, v FROM entry") == [(1, "c"), (3, "d")]
    run("INSERT OVERWRITE entry WITH ({place}) SELECT * FROM entry WHERE false")
    assert run("SELECT k, v FROM entry") == []
