"""Rollbacks, branches and fast-forwards next to live Java: the same small files where Java is right."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import MaintenancePolicy, maintain
from pypaimon.streaming.maintenance import create_branch, delete_branch, fast_forward, rename_branch, rollback
from support.java.live import LiveJava
from support.tables.named_files import files_of, needed_files

pytestmark = [pytest.mark.java, pytest.mark.slow]

KEYED = {"bucket": "2"}
KINDS: dict[str, tuple[list[str], dict[str, str]]] = {
    "append": ([], {}),
    "keyed": (["k"], KEYED),
    "input": (["k"], {**KEYED, "changelog-producer": "input"}),
    "lookup": (["k"], {**KEYED, "changelog-producer": "lookup"}),
    "vectors": (["k"], {**KEYED, "deletion-vectors.enabled": "true"}),
    "row tracking": ([], {"row-tracking.enabled": "true"}),
}
KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1", "snapshot.expire.limit": "1000"}


class JavaTable:
    """A table of live Java, on which Java and this library act by turns."""

    def __init__(self, java: LiveJava, directory: Path, kind: str) -> None:
        self.java = java
        self._warehouse = directory / "warehouse"
        self.path = self._warehouse / "d.db" / "t"
        keys, options = KINDS[kind]
        java.call(
            "create", warehouse=str(self._warehouse), fields=[["k", "BIGINT NOT NULL"], ["v", "INT"]],
            partition_keys=[], primary_keys=keys, options={"snapshot.expire.limit": "0", **options},
        )  # fmt: skip

    def write(self, *rows: tuple[int, int], branch: str | None = None) -> None:
        place = {} if branch is None else {"branch": branch}
        self.java.call("write", flushes=[[["+I", *row] for row in rows]], **place)

    def handle(self, **options: str) -> Any:
        table = CatalogFactory.create({"warehouse": str(self._warehouse)}).get_table("d.t")
        return table.copy(options) if options else table

    def rows(self, branch: str | None = None, at: int | None = None) -> list[Any]:
        """The rows as Java reads them, of a snapshot if one is given."""
        place = {} if branch is None else {"branch": branch}
        options = {"scan.mode": "latest-full"}
        if at is not None:
            options = {"scan.mode": "from-snapshot-full", "scan.snapshot-id": str(at)}
        reply = self.java.call("read", options=options, **place)
        rows = (row for plan in reply["plans"][:1] for split in plan["splits"] for row in split["rows"])
        return sorted(tuple(row[1:]) for row in rows)

    def small(self) -> dict[str, Any]:
        """The snapshots, changelogs, tags and schemas of all branches."""
        found: dict[str, Any] = {}
        for home in (self.path, *self.path.glob("branch/branch-*")):
            for name in ("snapshot", "changelog", "tag", "schema"):
                for path in (each for each in (home / name).glob("*") if not each.name.startswith(".")):
                    found[str(path.relative_to(self.path))] = json.loads(path.read_text())
        return found

    def both(self, java: Callable[[], object], ours: Callable[[], object]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What Java and this library make of the same table; the table stays as ours."""
        kept = self._warehouse.with_name("kept")
        shutil.copytree(self._warehouse, kept)
        java()
        wanted = self.small()
        shutil.rmtree(self._warehouse)
        kept.rename(self._warehouse)
        ours()
        return wanted, self.small()


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.nightly) if kind in ("keyed", "lookup") else kind for kind in KINDS]
)
def table(java: LiveJava, tmp_path: Path, request: pytest.FixtureRequest) -> JavaTable:
    """A table with compactions, an overwrite, and tags of snapshots in the middle."""
    table = JavaTable(java, tmp_path, request.param)
    for number in range(4):
        table.write((number, number), (number + 1, 10 * number))
    table.java.call("compact", full=True, options={})
    table.write((7, 7))
    table.java.call("tag", name="early", snapshot=2)
    table.java.call("tag", name="late", snapshot=4)
    return table


def ids(table: JavaTable) -> list[int]:
    return sorted(int(path.name[9:]) for path in (table.path / "snapshot").glob("snapshot-*"))


def test_rollbacks_leave_the_small_files_of_java(table: JavaTable) -> None:
    wanted, found = table.both(
        lambda: table.java.call("rollback", snapshot=3), lambda: rollback(table.handle(), snapshot_id=3)
    )
    assert found == wanted
    before = table.rows()
    table.write((50, 50))
    assert len(table.rows()) == len(before) + 1 and needed_files(table.path) <= files_of(table.path)


def test_rollbacks_to_expired_tags_leave_those_of_java(table: JavaTable) -> None:
    table.java.call("expire", options=KEPT)
    wanted, found = table.both(
        lambda: table.java.call("rollback_to_tag", tag="early"), lambda: rollback(table.handle(), tag="early")
    )
    # Java names a changelog whose files have expired.
    for name in ("changelogManifestList", "changelogManifestListSize", "changelogRecordCount"):
        wanted["snapshot/snapshot-2"].pop(name, None)
        with suppress(KeyError):
            found["snapshot/snapshot-2"].pop(name)
    assert found == wanted
    table.write((50, 50))
    assert (50, 50) in table.rows()
    table.java.call("expire", options=KEPT)
    assert (50, 50) in table.rows()
    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1))
    assert needed_files(table.path) <= files_of(table.path)


def test_java_goes_on_after_a_rollback_as_latest(table: JavaTable) -> None:
    """Java's writer, its compaction and its expiry, which relies on the tag that holds the state."""
    table.java.call("rollback", snapshot=5)
    states = {number: table.rows(at=number) for number in (2, 4)}
    for number in (4, 2):
        report = rollback(table.handle(), snapshot_id=number, as_latest=True)
        assert table.rows() == states[number] and report.holding_tag is not None
    table.write((50, 50))
    assert table.rows() == sorted([*states[2], (50, 50)])
    table.java.call("compact", full=True, options={})
    table.java.call("expire", options=KEPT)
    assert table.rows() == sorted([*states[2], (50, 50)])
    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1))
    assert table.rows() == sorted([*states[2], (50, 50)]) and needed_files(table.path) <= files_of(table.path)


def test_branches_have_the_files_of_java(table: JavaTable) -> None:
    wanted, found = table.both(
        lambda: (table.java.call("branch", name="b", tag="early"), table.java.call("branch", name="e")),
        lambda: (create_branch(table.handle(), "b", tag="early"), create_branch(table.handle(), "e")),
    )
    assert found == {name: value for name, value in wanted.items() if not name.endswith(("EARLIEST", "LATEST"))} | {
        name: value for name, value in found.items() if name.endswith(("EARLIEST", "LATEST"))
    }
    table.write((60, 60), branch="b")
    assert (60, 60) in table.rows("b") and (60, 60) not in table.rows()
    rename_branch(table.handle(), "b", "c")
    assert (60, 60) in table.rows("c")
    delete_branch(table.handle(), "c")
    before = table.rows()
    maintain(table.handle(), MaintenancePolicy(min_snapshots=1, max_snapshots=1))
    assert table.rows() == before


def test_fast_forwards_leave_the_small_files_of_java(table: JavaTable) -> None:
    create_branch(table.handle(), "b", tag="early")
    table.write((60, 60), branch="b")
    table.java.call("compact", full=True, options={}, branch="b")
    table.write((61, 61), branch="b")
    expected = table.rows("b")
    wanted, found = table.both(
        lambda: table.java.call("fast_forward", name="b"),
        lambda: fast_forward(table.handle(), "b", discard_own_commits=True),
    )
    hints = ("snapshot/EARLIEST", "snapshot/LATEST")
    assert {k: v for k, v in found.items() if k not in hints} == {k: v for k, v in wanted.items() if k not in hints}
    # Java copies the hint of the branch, if it has one, which hides snapshot 1.
    assert (found[hints[0]], found[hints[1]]) == (1, ids(table)[-1])
    assert table.rows() == expected
    table.write((62, 62))
    assert table.rows() == sorted([*expected, (62, 62)])
    for name in ("main", "b"):
        maintain(table.handle(branch=name), MaintenancePolicy(min_snapshots=1, max_snapshots=1))
        assert table.rows() == sorted([*expected, (62, 62)]) and table.rows("b") == expected
