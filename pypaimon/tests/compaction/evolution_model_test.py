"""Random lives of tables with data evolution next to a model by row id; and compactions that die at any request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pypaimon.streaming import compact, maintain
from pypaimon.streaming.compaction import materialize_deletion_vectors, rewrite_file_index
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from support.crash.crashing_file_io import Killed, MortalFileIO
from support.samples import SOAK, sample_seed
from support.tables.evolving_table import EvolvingTable
from support.tables.handles import current_files
from support.tables.named_files import needed_files

pytestmark = [pytest.mark.slow, pytest.mark.soak]

STEP = 1 if SOAK else 7
BUDGET = settings(
    max_examples=300 if SOAK else 8, deadline=None, phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
PICKS = st.lists(st.integers(0, 99), min_size=1, max_size=3, unique=True)
CHANGES = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4)),
    st.tuples(st.just("update"), PICKS, st.sampled_from([("a",), ("b",), ("a", "b")])),
    st.tuples(st.just("delete"), PICKS),
)
COMPACTIONS = st.one_of(
    st.tuples(st.just("compact"), st.booleans(), st.none() | CHANGES),
    st.tuples(st.just("materialize"), st.none() | CHANGES),
    st.tuples(st.just("index"), st.sampled_from(["", "a", "b", "a,b"]), st.none() | CHANGES),
)
STEPS = st.lists(
    st.one_of(
        CHANGES, CHANGES, COMPACTIONS, COMPACTIONS, st.tuples(st.just("alter"), st.booleans()),
        st.tuples(st.just("expire")),
    ),
    min_size=5, max_size=14,
)  # fmt: skip


class Life:
    def __init__(self, directory: Path, options: dict[str, str]) -> None:
        self.table = EvolvingTable(directory, **options)
        self._again = Compaction(PaimonTable(self.table.handle))
        self._number = 0
        self._names = {name: name for name in ("id", "a", "b")}

    def step(self, what: str, *arguments: Any) -> None:
        self._number += 1
        getattr(self, f"_{what}")(*arguments)

    def _append(self, count: int) -> None:
        table, number = self.table, self._number
        key = self._names["id"]
        names = [name for name in table.types if name != key]
        table.append(
            *({key: 100 * number + each, **{name: self._value(name, each) for name in names}} for each in range(count))
        )

    def _value(self, name: str, number: int) -> Any:
        return f"{self._number}-{number}" if name == self._names["a"] else 1000 * self._number + number

    def _chosen(self, picks: list[int]) -> list[int]:
        there = sorted(self.table.model)
        return sorted({there[pick % len(there)] for pick in picks}) if there else []

    def _update(self, picks: list[int], columns: tuple[str, ...]) -> None:
        names = [self._names[name] for name in columns]
        chosen = self._chosen(picks)
        if chosen:
            self.table.update({row: {name: self._value(name, row) for name in names} for row in chosen})

    def _delete(self, picks: list[int]) -> None:
        chosen = self._chosen(picks)
        if chosen:
            self.table.delete(*chosen)

    def _alter(self, renames: bool) -> None:
        if renames:
            # Not a column that is updated: of those pypaimon reads old values once they are renamed.
            new = f"id{self._number}"
            self.table.rename_column(self._names["id"], new)
            self._names["id"] = new
        else:
            self.table.add_column(f"c{self._number}")

    def _expire(self) -> None:
        kept = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"}
        maintain(self.table.handle.copy(kept))

    def _materialize(self, meanwhile: Any) -> None:
        report = materialize_deletion_vectors(self.table.handle, on_progress=self._once(meanwhile))
        if report.new_snapshot_ids:
            self.table.renumber()

    def _index(self, columns: str, meanwhile: Any) -> None:
        names = ",".join(self._names[name] for name in columns.split(",") if name)
        options = {"file-index.bitmap.columns": names, "file-index.in-manifest-threshold": "1 mb"}
        rewrite_file_index(self.table.handle.copy(options), on_progress=self._once(meanwhile))

    def _once(self, meanwhile: Any) -> Callable[[int, int], None]:
        waiting = [] if meanwhile is None else [meanwhile]

        def change(_: int, __: int) -> None:
            if waiting:
                self.step(*waiting.pop())

        return change

    def _compact(self, full: bool, meanwhile: Any) -> None:
        if full:
            report = compact(self.table.handle, full=True, on_progress=self._once(meanwhile))
        else:
            report = self._again.run(on_progress=self._once(meanwhile))
        assert meanwhile is not None or not report.conflicts
        if report.conflicts:
            self.table.check()
            assert not compact(self.table.handle, full=full).conflicts

    def check(self) -> None:
        self.table.check()
        files = current_files(self.table.handle)
        assert all(Path(file.file_path).exists() for file in files)


@BUDGET
@given(
    steps=STEPS,
    least=st.sampled_from(["2", "3", "5"]),
    size=st.sampled_from(["1 b", "3 kb", "256 mb"]),
    format_=st.sampled_from(["parquet", "parquet", "avro", "orc", "row"]),
)
def test_random_histories(steps: list[Any], least: str, size: str, format_: str) -> None:
    options = {
        "compaction__min__file_num": least, "target_file_size": size, "file__format": format_,
        "source__split__open_file_cost": "1 b",
    }  # fmt: skip
    with TemporaryDirectory() as directory:
        life = Life(Path(directory), options)
        for step in steps:
            life.step(*step)
            life.check()
        life.step("compact", True, None)
        life.check()


def test_a_process_dies_at_every_request(tmp_path: Path) -> None:
    for steps in range(1 + sample_seed() % STEP, 90, STEP):
        table = EvolvingTable(tmp_path / str(steps), compaction__min__file_num="3")
        table.numbered(4)
        table.numbered(3)
        table.delete(1, 5)
        table.update({2: {"a": "x"}, 6: {"a": "y"}})
        dying = table.handle
        dying.file_io = MortalFileIO(steps)
        try:
            compact(dying)
        except Killed:
            table.check()
            compact(table.handle)
            table.check()
            assert len(current_files(table.handle)) == 1
            assert needed_files(table.at.path) <= {each.name for each in table.at.path.rglob("*")}
            continue
        break
    assert 15 < steps < 80
