"""The notebooks run from top to bottom, what they claim they assert, and they are kept with what a run printed.

In `make soak`; that with PyTorch in `make test-feeds`, where `ray_feed_test.py` runs the code of that of Ray.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from support.docs.notebooks import NOTEBOOKS, comparable, run_notebook, with_outputs

pytestmark = pytest.mark.slow

MARKS = {
    "spark": [pytest.mark.spark, pytest.mark.nightly],
    "feeds": [pytest.mark.torch],
    "ray": [pytest.mark.ray, pytest.mark.nightly],
}
CASES = [pytest.param(path, id=path.stem, marks=MARKS.get(path.stem, [pytest.mark.nightly])) for path in NOTEBOOKS]
HOW = "pypaimon/tests/support/run.py support.docs.notebooks"


@pytest.mark.parametrize("path", CASES)
def test_a_notebook_runs_and_prints_what_is_stored_in_it(path: Path, tmp_path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    done = with_outputs(notebook, run_notebook(path, tmp_path))
    assert comparable(path, notebook) == comparable(path, done), f"make it again: {HOW} {path.stem}"


@pytest.mark.parametrize("name", ["first-steps", "live-tables"])
async def test_their_code_runs_without_a_kernel(name: str) -> None:
    (path,) = (path for path in NOTEBOOKS if path.stem == name)
    names: dict[str, Any] = {"__name__": "__main__", "display": print}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), name, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            running = eval(code, names)
            if running is not None:
                await running


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_with_outputs_of_no_machine(path: Path) -> None:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert any(cell["outputs"] for cell in code), f"make them: {HOW} {path.stem}"
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert "error" not in {output["output_type"] for cell in code for output in cell["outputs"]}
    # Images aside, whose text is arbitrary.
    texts = [
        "".join(text)
        for cell in code
        for output in cell["outputs"]
        for kind, text in (output.get("data") or {"text/plain": output.get("text", [])}).items()
        if "image" not in kind
    ]
    assert re.findall(r"/tmp/(?!…)|/home/|/root/|/Users/", "\n".join(texts)) == []
