"""`TableHandle` beside pypaimon's own table: the same table, the same copies, the same refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pypaimon.common.identifier import Identifier

from pypaimon.streaming.metadata.table_handle import FilesOnly, TableHandle
from pypaimon.streaming.paimon.handles import dynamic_options
from support.tables.streamed_table import Table

ATTRIBUTES = ("identifier", "table_path", "table_schema")


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with rows and a branch."""
    made = Table(tmp_path / "warehouse", primary_key=True, changelog_producer="input")
    made.commit([(1, "+I")])
    made.handle().branch_manager().create_branch("b")
    return made


def handle_of(table: Table, name: str = "t") -> TableHandle:
    environment = FilesOnly(Identifier("db", name), {"warehouse": str(table.path.parents[1])})
    found = TableHandle.found(table.handle().file_io, str(table.path), environment)
    assert found is not None
    return found


def same(ours: Any, theirs: Any) -> bool:
    alike = all(getattr(ours, name) == getattr(theirs, name) for name in ATTRIBUTES)
    options = ours.options.options.to_map() == theirs.options.options.to_map()
    return alike and options and ours.current_branch() == theirs.current_branch()


@pytest.mark.parametrize("name", ["t", "t$branch_b"])
def test_it_is_the_table_of_the_catalog(table: Table, name: str) -> None:
    theirs = table.catalog.get_table(f"db.{name}")
    ours = handle_of(table, name)
    assert same(ours, theirs)
    loader = ours.catalog_environment.catalog_loader
    assert same(loader.load().get_table("db.t"), table.handle())


@pytest.mark.parametrize(
    "copies",
    [
        [{}],
        [{"scan.mode": "latest"}, {"scan.mode": None, "read.batch-size": "7"}],
        [{"changelog-producer": None}],
        [{"bucket": "2"}],
        [{"branch": "b"}, {"scan.mode": "latest"}],
    ],
    ids=str,
)
def test_copies_are_those_of_pypaimon(table: Table, copies: list[dict[str, Any]]) -> None:
    ours, theirs = handle_of(table), table.handle()
    for options in copies:
        ours, theirs = ours.copy_without_time_travel(options), theirs.copy_without_time_travel(options)
    assert same(ours, theirs)
    assert dynamic_options(ours) == dynamic_options(theirs)
    assert ours.catalog_environment.identifier == theirs.catalog_environment.identifier


@pytest.mark.parametrize("options", [{"bucket": "7"}, {"data-file.path-directory": "x"}], ids=str)
def test_what_no_copy_may_change_is_refused_as_by_pypaimon(table: Table, options: dict[str, Any]) -> None:
    said = []
    for each in (handle_of(table), table.handle()):
        with pytest.raises(ValueError, match="Cannot change") as caught:
            each.copy_without_time_travel(options)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_an_empty_place_has_no_table(table: Table) -> None:
    environment = FilesOnly(Identifier("db", "other"))
    assert TableHandle.found(table.handle().file_io, str(table.path.with_name("other")), environment) is None
    assert environment.catalog_loader is None
