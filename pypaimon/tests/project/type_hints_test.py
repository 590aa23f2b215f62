"""Annotations of the public face mean something at run time too: `typing.get_type_hints`, and what is built on it."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from pypaimon.streaming.lazy_imports import LazyModule
from support.docs.public_face import PACKAGES, public_names

pytestmark = pytest.mark.slow


def public_callables() -> Iterator[tuple[str, Any]]:
    for package in PACKAGES:
        for name, value in public_names(package):
            yield f"{package}.{name}", value
            if inspect.isclass(value):
                yield from ((f"{package}.{name}.{member}", each) for member, each in methods(value))


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods and getters that this project wrote."""
    for name, member in inspect.getmembers(kind):
        function = inspect.unwrap(member.fget if isinstance(member, property) else member)
        public = not name.startswith("_") or name == "__init__"
        if public and inspect.isfunction(function) and function.__module__.startswith(PACKAGES):
            yield name, function


@pytest.mark.torch
def test_every_annotation_of_the_public_face_resolves() -> None:
    failed, seen = {}, 0
    for name, value in public_callables():
        seen += 1
        try:
            typing.get_type_hints(value)
        except NameError as error:
            failed[name] = repr(error)
    assert seen > 300
    assert failed == {}


def test_annotations_are_the_classes_themselves() -> None:
    import polars

    from pypaimon.streaming import Batch, StreamReadBuilder, StreamTableRead

    assert typing.get_type_hints(Batch.to_polars)["return"] is polars.DataFrame
    assert typing.get_type_hints(StreamReadBuilder.new_read)["return"] is StreamTableRead


def test_modules_of_annotations_are_not_imported_with_the_classes() -> None:
    code = (
        "import sys; from pypaimon.streaming import AsyncStreamingTableScan, Batch; "
        "from pypaimon.streaming.telemetry import StreamMetrics; "
        "print({'asyncio', 'duckdb', 'opentelemetry', 'pandas', 'polars'} & {*sys.modules})"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "set()"


def test_what_is_not_installed_is_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    from pypaimon.streaming import DuckDBTarget

    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert typing.get_type_hints(DuckDBTarget.__init__)["connection"] is Any


def test_a_module_that_fails_by_itself_is_an_error(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.joinpath("half_installed.py").write_text("import a_package_that_is_missing\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_missing"):
        _ = LazyModule("half_installed").DataFrame
    with pytest.raises(AttributeError):
        _ = LazyModule("pathlib").Paths
