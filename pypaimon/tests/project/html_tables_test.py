"""What notebooks show: escaped, without secrets, and bounded in size."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from pypaimon.streaming import database_stream_builder, stream_read_builder, stream_write_builder
from pypaimon.streaming.html_tables import MOST_CHARACTERS, MOST_COLUMNS, MOST_ROWS, html_fields, html_table
from support.tables.handles import write_by_pypaimon
from support.tables.orders import catalog, orders

pytestmark = pytest.mark.slow


class Cells(HTMLParser):
    """The texts of a piece of HTML, whose tags must match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.rows = 0
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("div", "b", "table", "thead", "tbody", "tr", "th", "td", "small") and attrs == []
        self.rows += tag == "tr"
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_texts_are_escaped_and_secrets_hidden() -> None:
    evil = "<script>alert('&')</script>"
    assert Cells(html_table(evil, [evil], [[evil]])).texts == [evil] * 3
    shown = html_fields("Options", {"s3": "s3.secret-key=abcdefgh", "path": "s3://user:word@lake/x", "none": None})
    assert "abcdefgh" not in shown and "word" not in shown
    assert Cells(shown).texts[-1] == "unknown"


def test_a_table_is_bounded_in_every_direction(tmp_path: Path) -> None:
    rows = pa.table({f"c{number}": ["<&>" * 1000] * 1000 for number in range(50)})
    found = catalog(tmp_path)
    found.create_table("db.wide", Schema.from_pyarrow_schema(rows.schema), False)
    table = found.get_table("db.wide")
    write_by_pypaimon(table, rows)
    with stream_read_builder(table).open_sync() as stream:
        shown = next(stream)._repr_html_()
    cells = Cells(shown)
    assert cells.rows == MOST_ROWS + 1
    assert cells.texts[-1] == f"{1000 - MOST_ROWS} more rows, {50 - MOST_COLUMNS} more columns"
    assert len(shown) < (MOST_ROWS + 2) * MOST_COLUMNS * (5 * MOST_CHARACTERS + 30)


def test_batches_gauges_and_builders_are_tables(tmp_path: Path) -> None:
    found = catalog(tmp_path)
    table = orders(found)
    builder = stream_read_builder(table).with_filter("status = '<b>'").with_end("latest")
    with stream_read_builder(table).with_end("latest").open_sync() as stream:
        batch = next(stream)
        lag = Cells(stream.lag()._repr_html_()).texts
    texts = Cells(batch._repr_html_()).texts
    assert texts == [repr(batch), "_row_kind", "id", "status", "amount", "op", "+U", "1", "paid", "1.5", "+U"]
    assert lag[:3] == ["Lag", "snapshots", "0"]
    position = Cells(batch.plan_after._repr_html_()).texts
    assert position[0] == "Position" and position[position.index("snapshot") + 1] == "5"
    assert "status = '<b>'" in Cells(builder._repr_html_()).texts
    group = Cells(builder.new_group("loaders")._repr_html_()).texts
    assert "loaders" in group
    assert Cells(stream_write_builder(table).with_commit_user("me")._repr_html_()).texts[:3] == [
        "StreamWriteBuilder(db.orders)", "user", "me",
    ]  # fmt: skip
    database = database_stream_builder(found, "db", include="o.*").with_start("latest")
    assert Cells(database._repr_html_()).texts == [
        "DatabaseStreamBuilder(db)",
        "include",
        "o.*",
        "start: mode",
        "latest",
    ]
    with stream_read_builder(table).open_live_sync() as live:
        shown = live._repr_html_()
        assert Cells(shown).texts[:5] == ["BlockingLiveTable", "rows", "1", "snapshot_id", "4"]
    assert Cells(live._repr_html_()).texts[1] == "error"
