"""Every public name and parameter of pypaimon's classes is there in ours of the same name; what is not has a reason."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from pypaimon.streaming.install import paimon_class
from support.docs.public_face import public_names

PAIMON = {
    "StreamReadBuilder": "pypaimon.read.stream_read_builder",
    "AsyncStreamingTableScan": "pypaimon.read.streaming_table_scan",
    "StreamTableRead": "pypaimon.read.table_read.TableRead",
    "ConsumerManager": "pypaimon.consumer.consumer_manager",
    "SnapshotManager": "pypaimon.snapshot.snapshot_manager",
    "FollowUpScanner": "pypaimon.read.scanner.follow_up_scanner",
    "DeltaFollowUpScanner": "pypaimon.read.scanner.delta_follow_up_scanner",
    "ChangelogFollowUpScanner": "pypaimon.read.scanner.changelog_follow_up_scanner",
    "IncrementalDiffScanner": "pypaimon.read.scanner.incremental_diff_scanner",
    "Plan": "pypaimon.read.plan",
    "StreamSplit": "pypaimon.read.split.DataSplit",
    "Snapshot": "pypaimon.snapshot.snapshot",
}
"""Our classes, and where pypaimon's are: a module that has one of that name, or the class itself."""

UNTOUCHED = ("ConsumerManager", "Plan", "Snapshot", "SnapshotManager")
"""Those whose names pypaimon's batch reads and writes use too: they stay pypaimon's."""

_NOT_KEPT = "base_manifest_list_size changelog_manifest_list_size delta_manifest_list_size writer_version"
OTHERWISE = {
    "Plan.__init__": "the splits have a plain name there",
    "Snapshot.__init__": "snapshots are read, never made",
    **{f"Snapshot.{name}": "no stream needs it, and thousands of snapshots are kept" for name in _NOT_KEPT.split()},
    "StreamSplit.__init__": "splits are made by plans",
}
"""What is meant to differ: a member, or one of its parameters, and why."""


INHERITED = {
    "StreamTableRead.convert_rows_to_arrow_batch": "of its arguments alone",
    "StreamTableRead.nested_name_paths": "of plans of pypaimon's own",
    "StreamTableRead.to_torch": "reads with our methods",
    **{
        f"StreamSplit.{name}": "of the files that ours hands to pypaimon's constructor"
        for name in ("bucket", "file_paths", "files", "filter_file", "merged_row_count", "partition")
    },
}
"""What is pypaimon's own code in ours, and why it does the right thing."""


_OURS = {**dict(public_names("pypaimon.streaming.stream_types")), **dict(public_names("pypaimon.streaming"))}


def class_of_pypaimon(name: str) -> Any:
    path, _, last = PAIMON[name].rpartition(".")
    if last[0].isupper():
        return getattr(import_module(path), last)
    return getattr(import_module(PAIMON[name]), name) if name in UNTOUCHED else paimon_class(PAIMON[name])


def differences(name: str) -> Iterator[str]:
    """The members of pypaimon's class that ours does not have, and the parameters that it does not take as they are."""
    ours, theirs = _OURS[name], class_of_pypaimon(name)
    for member in sorted({member for kind in theirs.__mro__[:-1] for member in vars(kind)}):
        if member.startswith("_") and member != "__init__":
            continue
        if not any(member in vars(kind) for kind in ours.__mro__ if kind.__module__.startswith("pypaimon.streaming")):
            if f"{name}.{member}" not in INHERITED:
                yield f"{name}.{member}"
            continue
        mine, other = getattr(ours, member), getattr(theirs, member)
        if not callable(other):
            continue
        if not set(_parameters(other)) <= set(_parameters(mine)) and member == "__init__":
            yield f"{name}.{member}"
            continue
        for index, (parameter, (kind, default)) in enumerate(_parameters(other).items()):
            if list(_parameters(mine).items())[index : index + 1] != [(parameter, (kind, default))]:
                yield f"{name}.{member}({parameter})"


def _parameters(function: Any) -> dict[str, tuple[Any, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: (each.kind, each.default) for each in parameters}


@pytest.mark.parametrize("name", PAIMON)
def test_what_a_class_of_pypaimon_takes_ours_takes(name: str) -> None:
    found = sorted(differences(name))
    assert found == sorted(each for each in OTHERWISE if each.startswith(f"{name}."))
