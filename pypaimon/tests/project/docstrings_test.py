"""Docstrings name the arguments that a function has: what was renamed is renamed there too."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from support.repository import ROOT

pytestmark = pytest.mark.slow

Function = ast.FunctionDef | ast.AsyncFunctionDef


def described(docstring: str) -> list[str]:
    """The names below `Args:`."""
    section = re.search(r"^Args:\n((?: {4}.*\n?|\n)+)", docstring, re.MULTILINE)
    lines = re.findall(r"^ {4}([\w*]+(?:, [\w*]+)*):", section[1], re.MULTILINE) if section else []
    return [name.strip(" *") for line in lines for name in line.split(",")]


def arguments(function: Function) -> set[str]:
    given = function.args
    extra = [each for each in (given.vararg, given.kwarg) if each is not None]
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *extra)}


def unknown_in(source: str) -> Iterator[str]:
    """Arguments that a docstring describes and its function, or the `__init__` of its class, has not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            known = arguments(node)
        elif isinstance(node, ast.ClassDef):
            made = [each for each in node.body if isinstance(each, Function) and each.name == "__init__"]
            known = {name for each in made for name in arguments(each)}
        else:
            continue
        names = described(ast.get_docstring(node) or "")
        yield from (f"{node.name}: {name}" for name in names if name not in known)


@pytest.mark.parametrize("folder", ["streaming", "spark"])
def test_arguments_in_docstrings_are_those_of_the_code(folder: str) -> None:
    paths = sorted((ROOT / "pypaimon" / folder).rglob("*.py"))
    assert paths
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    found = [(path.name, each) for path, text in texts.items() if "Args:" in text for each in unknown_in(text)]
    assert found == []
