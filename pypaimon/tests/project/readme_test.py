"""What the README promises: its commands exist, its links lead somewhere, its quick start runs as printed."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema

from support.docs.readme_parts import BENCHMARKS, PICTURE, figures, picture, with_figures
from support.repository import ROOT
from support.tables.handles import write_by_pypaimon

pytestmark = pytest.mark.slow

README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_commands_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert {"demo", "test"} <= set(commands) <= set(targets)


def test_it_is_read_in_a_minute() -> None:
    assert README.count("\n") <= 100


def test_its_links_into_the_repository_lead_somewhere() -> None:
    links = re.findall(r"]\((?!https?:)([^)#]+)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_a_goal_that_cannot_be_met_counts_as_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.measuring import Figure, markdown

    page = BENCHMARKS.read_text(encoding="utf-8")
    row = Figure("requests", 3, "", "2", met=False, limit="one to open, two to read")
    (line,) = markdown([row]).splitlines()[2:]
    missed, measured = map(int, re.search(r"Missed: (\d+) of (\d+)", figures(page)).groups())
    shown = figures(f"{page}\n{line}\n")
    assert f"Missed: {missed + 1} of {measured + 1} measures" in shown
    assert "<li>requests: 3 (2): one to open, two to read</li>" in shown


def test_its_figures_are_those_of_the_last_benchmarks() -> None:
    assert with_figures(README) == README, "make readme takes them over"


def test_its_picture_is_one_of_the_demo() -> None:
    assert "](docs/demo.svg)" in README
    for drawing in (PICTURE.read_text(encoding="utf-8"), picture(seconds=1)):
        text = html.unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", drawing))).replace("\xa0", " ")
        assert re.search(r"snapshot +\d+ +changelog +\+U +\d+ +[A-Z]\w+ +(placed|paid|shipped|delivered)", text)
        assert "lag: 0 snapshots" in text
        assert not re.search(r"url\((?!#)|href", drawing), "nothing is loaded from elsewhere"


@pytest.mark.nightly
def test_its_quick_start_prints_the_state_of_a_table(warehouse: Any, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "status": ["placed", "paid"]})
    warehouse.create_table(
        "db.orders", Schema.from_pyarrow_schema(rows.schema, primary_keys=["id"], options={"bucket": "1"}), False
    )
    write_by_pypaimon(warehouse.get_table("db.orders"), rows)

    code, *_ = re.findall(r"```python\n(.+?)```", README, re.DOTALL)
    code = code.replace("/path/to/warehouse", str(tmp_path / "warehouse"))
    with subprocess.Popen([sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        printed = [program.stdout.readline() for _ in range(2)]
        program.kill()
    assert printed[0] == "1 pyarrow.Table\n"
    assert printed[1].startswith("_row_kind: string")
