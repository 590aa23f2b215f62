"""A frozen `StreamSpec`, and the stream that `resolve` makes of it for a table."""

from __future__ import annotations

import ast
import pickle
from dataclasses import FrozenInstanceError, fields, replace
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.options.stream_options import CallerOptions, CommitMode, StreamOptions
from pypaimon.streaming.spec.resolve import resolve
from pypaimon.streaming.spec.spec_builder import resolved
from pypaimon.streaming.spec.stream_spec import StreamSpec
from pypaimon.streaming.spec.streamed_table import StreamedTable
from support.repository import ROOT
from support.tables.streamed_table import Table

PRIVATE = {"_spec", "_facts", "_options", "_schema", "_traits", "_view", "_chain", "_followed", "_scan_driver"}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = Table(tmp_path / "w", primary_key=True)
    made.commit([1, 2])
    return made


def test_a_spec_cannot_be_changed() -> None:
    spec = StreamSpec(poll_interval_ms=7)
    with pytest.raises(FrozenInstanceError):
        spec.poll_interval_ms = 8  # type: ignore[misc]
    assert spec == StreamSpec(poll_interval_ms=7) != replace(spec, poll_interval_ms=8)


def test_a_setting_is_declared_twice_only_if_table_options_set_it_too() -> None:
    spec, options, callers = (
        {each.name for each in fields(kind)} for kind in (StreamSpec, StreamOptions, CallerOptions)
    )
    assert (spec & options) - callers == {"start", "end_watermark", "poll_interval_ms", "consumer", "bucket_filter"}


def test_setters_change_no_stream_that_was_resolved_or_opened_before(table: Table) -> None:
    builder = table.builder().with_projection(["v"]).with_end(latest=True)
    stream, before = resolved(builder), resolved(builder).spec
    with builder.open_sync() as opened:
        builder.with_projection(["k"]).with_filter("k = 1").with_include_row_kind(False)
        rows = [row for batch in opened for row in batch.data.to_pylist()]
    assert stream.spec is before != resolved(builder).spec
    assert [set(row) for row in rows] == [{"_row_kind", "v"}] * 2
    assert [field.name for field in stream.output_fields()] == ["v"]


def test_a_spec_needs_no_builder(table: Table) -> None:
    spec = StreamSpec(filter="k = 2", projection=("k",))
    stream = resolve(StreamedTable.of(table.handle()), spec)
    assert (stream.includes_row_kind, [field.name for field in stream.output_fields()]) == (True, ["k"])
    assert stream.options.predicate is not None
    again = stream.with_spec(replace(spec, filter=None, poll_interval_ms=7))
    assert (again.options.predicate, again.options.poll_interval_ms) == (None, 7)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"projection": ("x",)}, "with_projection: there is no column 'x'"),
        ({"filter": "x = 1"}, "there is no column 'x'"),
        ({"shard": (0, 2), "bucket_filter": {0}.__contains__}, "a shard and chosen buckets"),
    ],
)
def test_contradictions_are_raised_by_the_members_of_a_stream(table: Table, settings: Any, text: str) -> None:
    stream = resolve(StreamedTable.of(table.handle()), StreamSpec(**settings))
    for use in (lambda: stream.options, stream.scan_driver, stream.read_parts):
        with pytest.raises(StreamConfigError, match=text):
            use()


def test_a_pickled_stream_is_the_same_stream(table: Table) -> None:
    stream = resolved(table.builder().with_consumer_id("c", commit="manual").with_projection(["k"]))
    copy = pickle.loads(pickle.dumps(stream))
    assert (copy.spec, copy.identity, copy.scope) == (stream.spec, stream.identity, stream.scope)
    assert copy.spec.consumer.commit is CommitMode.MANUAL


def _foreign(path: Path) -> list[str]:
    """The private attributes of `PRIVATE` that a module reads of other objects."""
    text = path.read_text()
    if not any(f".{name}" in text for name in PRIVATE):
        return []
    read = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Attribute)]
    foreign = [node for node in read if node.attr in PRIVATE and ast.unparse(node.value) not in ("self", "cls")]
    return [f"{path.name}: {ast.unparse(node)}" for node in foreign]


@pytest.mark.slow
def test_no_module_reads_the_private_attributes_of_a_stream_or_its_builder() -> None:
    modules = [path for home in ("streaming", "spark") for path in (ROOT / "pypaimon" / home).rglob("*.py")]
    found = [each for path in modules for each in _foreign(path)]
    assert sorted(found) == ["spec_builder.py: builder._spec", "spec_builder.py: builder._spec"]
