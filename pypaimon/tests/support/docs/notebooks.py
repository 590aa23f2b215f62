"""Run the notebooks and store what they print: `python support/run.py support.docs.notebooks [NAME ...]`."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.repository import ROOT
from support.spark.session import ATTEMPTS, NO_WORKER, QUICK, quick_environment

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
_FOLLOW_A_WRITER = {"changelog", "live-tables"}
"""What these print depends on time: only the kinds of their outputs are compared."""
_COUNT = {"sharded-consumers", "spark"}
"""Numbers of these depend on the names of files, or on time, and are not compared."""
NO_NODE = "timed out during startup"
"""What Ray says on a machine that is too busy for its node."""
_MACHINE = [
    (re.compile(r"/[\w./-]*/tmp\w*|/tmp\w*"), "/tmp/…"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)?"), "2026-11-21 08:30:00+00:00"),
    (re.compile(r"datetime\.datetime\([^)]*\)"), "datetime.datetime(2026, 11, 21, 8, 30)"),
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "00000000-0000-0000-0000-000000000000"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "0x…"),
]
"""What another run, or another machine, prints otherwise, and what is stored in its place."""


def run_notebook(path: Path, directory: Path) -> dict[str, Any]:
    """Run a notebook in a kernel, in a directory.

    Returns:
        The notebook with its outputs.
    """
    done = directory / "done.ipynb"
    code = "import sys; from nbclient.cli import NbClientApp; NbClientApp.launch_instance(sys.argv[1:])"
    command = [sys.executable, "-c", code, "--timeout=600", f"--output={done.with_suffix('')}", str(path)]
    needs = {"spark": _of_spark, "ray": _of_ray}.get(path.stem)
    variables = {**os.environ, **(needs(directory / path.stem) if needs else {})}
    for _ in range(ATTEMPTS):
        result = subprocess.run(
            command, cwd=directory, env=variables, capture_output=True, text=True, timeout=900, check=False
        )
        if NO_WORKER not in result.stderr and NO_NODE not in result.stderr:
            break
    assert result.returncode == 0, result.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.read_text(encoding="utf-8"))
    return found


def _of_spark(directory: Path) -> dict[str, str]:
    """What Spark needs on a busy machine, without a word of it in the notebook."""
    directory.mkdir()
    options = shlex.join(f"--conf={key}={value}" for key, value in QUICK.items())
    return {**quick_environment(directory), "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"}


def _of_ray(directory: Path) -> dict[str, str]:
    """What a node of Ray needs where there is no network."""
    startup = directory / "profile_default" / "startup"
    startup.mkdir(parents=True)
    code = "import functools, ray\nray.init = functools.partial(ray.init, _node_ip_address='127.0.0.1')\n"
    (startup / "node.py").write_text(code, encoding="utf-8")
    return {"IPYTHONDIR": str(directory), "RAY_USAGE_STATS_ENABLED": "0"}


def with_outputs(notebook: dict[str, Any], done: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a run, without times and places of the machine."""
    outputs = [list(_outputs(cell)) for cell in _code(done)]
    cells = [{**cell} for cell in notebook["cells"]]
    for number, (cell, found) in enumerate(zip(_code({"cells": cells}), outputs, strict=True), 1):
        cell["outputs"], cell["execution_count"] = found, number
        for each in found:
            if "execution_count" in each:
                each["execution_count"] = number
    return {**notebook, "cells": cells}


def comparable(path: Path, notebook: dict[str, Any]) -> list[Any]:
    """What two runs of a notebook have in common."""
    found = [cell["outputs"] for cell in _code(notebook)]
    if path.stem in _FOLLOW_A_WRITER:
        return [[(each["output_type"], sorted(each.get("data", ()))) for each in outputs] for outputs in found]
    if path.stem in _COUNT:
        return [[re.sub(r"\d+(\.\d+)?", "#", json.dumps(each)) for each in outputs] for outputs in found]
    return found


def _code(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _outputs(cell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The outputs of a cell, without warnings and logs; parts of one stream are joined, because a run may cut it."""
    printed = [each for each in cell["outputs"] if each["output_type"] == "stream" and each["name"] == "stdout"]
    if printed:
        text = "".join(part for each in printed for part in _lines(each["text"]))
        yield {"name": "stdout", "output_type": "stream", "text": _stored(text)}
    for each in cell["outputs"]:
        if each["output_type"] != "stream":
            data = {kind: value if "image" in kind else _stored(value) for kind, value in each["data"].items()}
            yield {**each, "data": data}


def _lines(text: str | list[str]) -> list[str]:
    return text.splitlines(keepends=True) if isinstance(text, str) else text


def _stored(text: str | list[str]) -> list[str]:
    whole = "".join(_lines(text))
    for of_machine, instead in _MACHINE:
        whole = of_machine.sub(instead, whole)
    return whole.splitlines(keepends=True)


def text_of(notebook: dict[str, Any]) -> str:
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path in NOTEBOOKS:
        if path.stem in sys.argv[1:] or not sys.argv[1:]:
            notebook = json.loads(path.read_text(encoding="utf-8"))
            with tempfile.TemporaryDirectory() as directory:
                done = run_notebook(path, Path(directory))
            path.write_text(text_of(with_outputs(notebook, done)), encoding="utf-8")
            print(path.name)
