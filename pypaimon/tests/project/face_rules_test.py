"""The rules of the public face (docs/reference.md#rules): blocking and awaited calls, setters, durations, targets."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

from support.docs.public_face import PACKAGES, is_made_by_users, public_names

pytestmark = pytest.mark.torch

OF_BOTH_WORLDS = {"AsyncStreamingTableScan", "StreamTableRead", "Compactor"}
"""The first two have the names of pypaimon's scan and read; the last is left by `with` and by `async with`."""

OPENERS = {"open_sync", "open_live_sync", "stream_sync"}
INTERNAL = r"\b(Clock|\w*(Chunk|Driver|Engine|Reader|Settings|Updater|ReadAhead|ResolvedStream))\b"


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    return {name: value for package in PACKAGES if "spark" not in package for name, value in public_names(package)}


def members(kind: type) -> Iterator[tuple[str, Any]]:
    yield from ((name, value) for name, value in inspect.getmembers(kind) if not name.startswith("_"))


def test_functions_block_and_their_twins_with_async_are_awaited(names: dict[str, Any]) -> None:
    functions = {name: value for name, value in names.items() if inspect.isfunction(value)}
    assert {name for name, value in functions.items() if inspect.iscoroutinefunction(value)} == {
        name for name in functions if name.endswith("_async")
    }
    assert {name.removesuffix("_async") for name in functions} <= {*functions}
    assert [name for name in functions if name.endswith("_sync")] == []


def test_objects_belong_to_one_world(names: dict[str, Any]) -> None:
    classes = {name: value for name, value in names.items() if inspect.isclass(value)}
    for name in {*classes} - OF_BOTH_WORLDS:
        found = [member for member, _ in members(classes[name])]
        assert [each for each in found if each.endswith(("_async", "_sync")) and each not in OPENERS] == [], name
    pairs = {name: name.removeprefix("Blocking") for name in classes if name.startswith("Blocking")}
    assert len(pairs) >= 8
    for blocking, awaited in pairs.items():
        ours, theirs = dict(members(classes[blocking])), dict(members(classes[awaited]))
        assert [name for name, value in ours.items() if inspect.iscoroutinefunction(value)] == [], blocking
        assert {*ours} - {"close", "to_arrow_batch_reader"} == {*theirs} - {"aclose"}, blocking
        assert ("close" in ours) == ("aclose" in theirs) and "close" not in theirs, blocking


def test_former_names_that_scripts_use_are_still_found(names: dict[str, Any]) -> None:
    import pypaimon.streaming as ours

    assert (ours.copy_stream_sync, ours.stream_database) == (names["copy_stream"], names["database_stream_builder"])
    assert (ours.compactor, ours.CommitReport) == (names["Compactor"], names["CommitReport"])
    assert not {"copy_stream_sync", "stream_database", "compactor", "CommitReport"} & {*ours.__all__}
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = ours.nothing


def test_former_names_of_methods_are_still_found(names: dict[str, Any]) -> None:
    target = names["DictTarget"](keys="k")
    assert target.position() is None
    with pytest.raises(AttributeError, match="'DictTarget' object has no attribute 'nothing'"):
        _ = target.nothing
    for kind in ("StreamReadBuilder", "DatabaseStreamBuilder", "DictTarget", "DuckDBTarget"):
        former = names[kind]._former_names
        assert former and all(hasattr(names[kind], current) for current in former.values())
        assert not {*former} & {*dir(names[kind])}


def test_setters_of_builders_begin_with_with_and_return_the_builder(names: dict[str, Any]) -> None:
    for name in ("StreamReadBuilder", "StreamWriteBuilder", "DatabaseStreamBuilder"):
        found = {each: inspect.signature(value) for each, value in members(names[name]) if inspect.isfunction(value)}
        returning = {each for each, value in found.items() if value.return_annotation in ("B", name)}
        assert returning - {"copy"} == {each for each in found if each.startswith("with_")}, name


def test_durations_name_no_unit_and_are_seconds_or_timedeltas(names: dict[str, Any]) -> None:
    seen = set()
    for name, value in names.items():
        calls = members(value) if inspect.isclass(value) else iter([("", value)])
        made = [("", value.__init__)] if inspect.isclass(value) and is_made_by_users(value) else []
        for member, call in [*calls, *made]:
            if not inspect.isfunction(call):
                continue
            for each in inspect.signature(call).parameters.values():
                where = f"{name}.{member}({each})"
                assert not re.search(r"_(seconds|millis|ms)$", each.name.replace("poll_interval_ms", "")), where
                if re.search(r"interval$|pause$|^duration$|idle_time$|_age$|timeout$|^max_hold$|^seconds$", each.name):
                    assert "float | timedelta" in str(each.annotation), where
                    seen.add(each.name)
    assert {"commit_interval", "duration", "first_pause", "interval", "max_hold", "seconds", "session_timeout"} <= seen


def test_targets_take_the_place_then_the_table_then_the_keys(names: dict[str, Any]) -> None:
    shapes = {
        name: [each.name for each in inspect.signature(value).parameters.values() if each.kind is not each.KEYWORD_ONLY]
        for name, value in names.items()
        if re.fullmatch(r"\w+Target", name) and name not in ("Target", "DatabaseTarget")
    }
    assert len(shapes) == 9
    for name, shape in shapes.items():
        known = ["connection", "catalog", "directory", "table", "keys"]
        assert shape == [each for each in known if each in shape], name
        for keys in [each for each in inspect.signature(names[name]).parameters.values() if each.name == "keys"]:
            assert str(keys.annotation).startswith("str | Sequence[str]"), name


def test_constructors_that_take_internals_are_not_public(names: dict[str, Any]) -> None:
    classes = {name: value for name, value in names.items() if inspect.isclass(value) and is_made_by_users(value)}
    assert {"StreamReadBuilder", "DuckDBTarget", "Compactor", "Replication"} <= {*classes}
    for name, value in classes.items():
        assert not re.search(INTERNAL, str(inspect.signature(value))), name
