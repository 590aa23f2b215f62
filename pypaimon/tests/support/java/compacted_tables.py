"""Random tables that live Java and this library write and compact by turns, and what every compaction must leave.

The rows, with ids where they have some, are the same before and after each compaction, for Java's batch reads and for
our reads, and neither stream gets a row that the other one does not.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from pypaimon import CatalogFactory

from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.compaction import file_reading
from pypaimon.streaming.compaction.chosen_partitions import ChosenPartitions
from pypaimon.streaming.compaction.compactor import Compaction
from pypaimon.streaming.compaction.file_reading import FileReader
from pypaimon.streaming.compaction.live_files import LiveEntries, live_buckets
from pypaimon.streaming.compaction.sort_order import sort_request
from pypaimon.streaming.compaction.task_pickers import sort_picker, task_picker
from pypaimon.streaming.compaction.vector_index import VectorIndex
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.writing.files import rolling_files
from support.corpus.values import column_values, wanted_value
from support.java.histories import NESTED, WIDER
from support.java.live import OTHER_JARS, JavaError, LiveJava
from support.java.twins import arrow_value, write
from support.java.values import value

Options = dict[str, str]
Row = list[Any]
Command = dict[str, Any]

SIMPLE = (
    *("INT", "BIGINT", "TINYINT", "DOUBLE", "FLOAT", "STRING", "BYTES", "BOOLEAN", "DATE", "DECIMAL(10, 2)"),
    *("TIMESTAMP(3)", "TIMESTAMP(6)", "VARCHAR(5)"),
)
SORTABLE = ("INT", "BIGINT", "STRING", "DATE", "DOUBLE", "DECIMAL(10, 2)", "TIMESTAMP(3)")
SYSTEM = ("_ROW_ID", "_SEQUENCE_NUMBER")
_ALL_TIMES = 2**42
INDEXES: tuple[Options, ...] = (
    {"file-index.bloom-filter.columns": "n"},
    {"file-index.bitmap.columns": "n", "file-index.in-manifest-threshold": "1 mb"},
    {"file-index.bsi.columns": "n", "file-index.in-manifest-threshold": "0 b"},
    {"file-index.range-bitmap.columns": "n"},
)


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        options: The options that each table has.
        drawn: Options that are drawn for a table.
        types: Types of the columns c0, c1, ...
        changes: What happens to it between compactions, as often as it is to come.
        key: The columns of the primary key, without `p`.
        blobs: How many of the tables have a column of blobs.
        branches: Those that are written, if not the table.
        newer: Options that are drawn for current Java.
        is_newer: Whether only current Java has such tables.
        is_written_here: Whether ours writes them too.
        is_shown_late: Whether readers see what was written after a compaction only.
        needs_current: Whether only compactions of current Java are right.
    """

    options: Options
    drawn: Callable[[random.Random], Options]
    types: Sequence[Any]
    changes: Sequence[str]
    key: tuple[str, ...] = ()
    blobs: float = 0
    branches: tuple[str | None, ...] = (None,)
    newer: Callable[[random.Random], Options] = lambda rng: {}
    is_newer: bool = False
    is_written_here: bool = True
    is_shown_late: bool = False
    needs_current: bool = False

    @property
    def is_tracked(self) -> bool:
        return self.options.get("row-tracking.enabled") == "true"

    @property
    def is_evolving(self) -> bool:
        return self.options.get("data-evolution.enabled") == "true"


def _sizes(rng: random.Random) -> Options:
    found = {
        "file.format": rng.choice(["parquet", "parquet", "orc", "avro"]),
        "compaction.min.file-num": rng.choice(["2", "3", "5"]),
        "target-file-size": rng.choice(["2 kb", "8 kb", "128 mb"]),
        "source.split.open-file-cost": rng.choice(["1 b", "1 kb", "4 mb"]),
    }
    if rng.random() < 0.2:
        found["metadata.stats-mode"] = rng.choice(["none", "full", "counts"])
    if rng.random() < 0.2:
        found |= {"manifest.merge-min-count": "2"}
    return found


def _vectors(rng: random.Random) -> Options:
    if rng.random() < 0.4:
        return {}
    return {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": rng.choice(["false", "true"])}


def _append(rng: random.Random) -> Options:
    indexes = rng.choice(INDEXES) if rng.random() < 0.3 else {}
    return {**_sizes(rng), **_vectors(rng), **indexes}


def _bucketed(rng: random.Random) -> Options:
    ordered = {} if rng.random() < 0.5 else {"bucket-append-ordered": "false"}
    return {**_append(rng), **ordered, "compaction.max.file-num": rng.choice(["2", "5"])}


def _clustering(rng: random.Random, there: Sequence[str] = ("n", "c0", "c1")) -> Options:
    columns = rng.sample(there, min(rng.randint(1, 3), len(there)))
    # Java's curve of one column is an error.
    strategies = ["auto", "order", "zorder", *(["hilbert"] if len(columns) > 1 else [])]
    return {"clustering.columns": ",".join(columns), "clustering.strategy": rng.choice(strategies)}


def _clustered(rng: random.Random) -> Options:
    found = {**_sizes(rng), **_clustering(rng), "num-sorted-run.compaction-trigger": rng.choice(["2", "3", "5"])}
    if rng.random() < 0.25:
        return {**found, "bucket": "2", "bucket-key": "n", "bucket-append-ordered": "false"}
    return {**found, **_vectors(rng)}


def _evolution(rng: random.Random) -> Options:
    dense = {} if rng.random() < 0.7 else {"metadata.stats-dense-store": "false"}
    return {**_sizes(rng), "compaction.min.file-num": rng.choice(["2", "2", "3"]), **dense}


def _evolution_vectors(rng: random.Random) -> Options:
    return {"deletion-vectors.enabled": "true"} if rng.random() < 0.7 else {}


def _levels(rng: random.Random) -> Options:
    engine = rng.choice(["deduplicate", "deduplicate", "partial-update"])
    return {
        **_sizes(rng), "merge-engine": engine, "num-sorted-run.compaction-trigger": rng.choice(["2", "3", "5"]),
    }  # fmt: skip


def _clustered_keys(rng: random.Random) -> Options:
    vectors = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": rng.choice(["false", "true"])}
    newest = {**vectors, "changelog-producer": rng.choice(["none", "input"])}
    first = {"merge-engine": "first-row", **(vectors if not OTHER_JARS or rng.random() < 0.5 else {})}
    return {
        **_sizes(rng), **rng.choice([newest, newest, first]),
        "num-sorted-run.compaction-trigger": rng.choice(["1", "2", "3"]),
        "clustering.columns": ",".join(rng.sample(["n", "c0", "c1"], rng.randint(1, 2))),
    }  # fmt: skip


OUTCOMES: dict[str, dict[str, bool | None]] = {
    "write": {"kept": False},
    "compact": {"kept": False, "replaced": True},
    # By the ranges of row ids, which must be equal or apart.
    "evolve": {"kept": None},
    "delete": {"kept": None},
}
"""Whether Java refuses to commit a compaction, by what ours commits after its plan, and by whether ours keeps or
replaces the files of that plan (None: either). The rows are in each case those after the commit of ours.
"""
CONFLICTS = ("File deletion conflicts", "multiple 'MERGE INTO' and 'COMPACT'")

_WRITES = ("write",) * 6
_OTHERS = ("alter", "alter", "replace", "option")
KINDS = {
    "tracked": Kind(
        {"row-tracking.enabled": "true"}, _append, (*SIMPLE, *NESTED.values()), (*_WRITES, "delete", "delete", *_OTHERS)
    ),
    "append": Kind({}, _append, (*SIMPLE, *NESTED.values()), (*_WRITES, "delete", "delete", *_OTHERS)),
    "bucketed": Kind(
        {"bucket": "2", "bucket-key": "n"}, _bucketed, (*SIMPLE, *NESTED.values()), (*_WRITES, "delete", *_OTHERS)
    ),
    "evolution": Kind(
        {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}, _evolution, (*SIMPLE, *NESTED.values()),
        (*_WRITES, *["evolve"] * 5, *["delete"] * 4, *_OTHERS), blobs=0.3, newer=_evolution_vectors,
    ),
    "sorted": Kind({}, _append, SORTABLE, (*_WRITES, "delete", *_OTHERS)),
    "clustered": Kind(
        {"clustering.incremental": "true"}, _clustered, SORTABLE, (*_WRITES, "delete", "cluster by", *_OTHERS)
    ),
    "ordered": Kind(
        {"bucket": "2", "sequence.snapshot-ordering": "true", "write-only": "true"}, _levels, SIMPLE,
        (*_WRITES, *_OTHERS), key=("k",), is_newer=True,
    ),
    "managed": Kind(
        {"bucket": "2", "write-only": "true"}, _levels, SIMPLE, (*_WRITES, *_OTHERS), key=("k",), blobs=1,
        is_newer=True, is_written_here=False,
    ),
    "clustered keys": Kind(
        {"bucket": "2", "write-only": "true", "pk-clustering-override": "true"}, _clustered_keys, SORTABLE,
        (*_WRITES, "alter", "option"), key=("k",), is_shown_late=True, needs_current=True,
    ),
    "chain": Kind(
        {"bucket": "2", "write-only": "true", "chain-table.enabled": "true", "sequence.field": "n",
         "partition.timestamp-pattern": "$p", "partition.timestamp-formatter": "yyyyMMdd"},
        lambda rng: {**_levels(rng), "merge-engine": "deduplicate"}, SIMPLE, _WRITES,
        key=("k",), branches=("snapshot", "delta"),
    ),
}  # fmt: skip


def kinds_of(*, current: bool) -> list[str]:
    """The kinds that the release of Java has, or current Java."""
    return [name for name, kind in KINDS.items() if current or not kind.is_newer]


@dataclass(slots=True)
class CompactedTally:
    histories: int = 0
    commits: int = 0
    compactions: Counter[str] = field(default_factory=Counter)
    orders: Counter[str] = field(default_factory=Counter)
    meanwhile: int = 0
    conflicts: int = 0
    races: Counter[str] = field(default_factory=Counter)
    rows: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        head = (
            f"{self.histories} histories, {self.commits} commits, compactions {dict(self.compactions)}, in order"
            f" {dict(self.orders)}, {self.meanwhile} with a commit in between, {self.conflicts} conflicts,"
            f" {self.rows} rows compared"
        )
        if self.races:
            head += f"\n    Java's commits after ours: {dict(sorted(self.races.items()))}"
        return "\n    ".join([head, *(f"{count} x {text}" for text, count in self.refused.most_common(6))])


class CompactedTable:
    """One history of one table."""

    def __init__(self, java: LiveJava, kind: Kind, rng: random.Random, warehouse: Path, tally: CompactedTally) -> None:
        self._java, self._kind, self._rng, self._warehouse, self._tally = java, kind, rng, warehouse, tally
        self.steps: list[str] = []
        self._waiting: list[Command] = []
        self._numbers: set[int] | None = set()
        self._shown = set[int]()
        self._written = 0
        self._renamed = 0
        self._writers = 0
        self._compacted_by: list[str] = []
        self._branch: str | None = None
        self._handles: dict[str | None, Any] = {}
        self._of_keys: dict[Any, int] = {}
        self._has_branches = kind.branches != (None,)
        partitioned = self._has_branches or rng.random() < 0.5
        self._partition_keys = ["p"] if partitioned else []
        partition = "STRING NOT NULL" if self._has_branches else "INT NOT NULL" if kind.key else "INT"
        fields: list[list[Any]] = [["n", "BIGINT"], *([["p", partition]] if partitioned else [])]
        fields += [[name, "BIGINT NOT NULL"] for name in kind.key]
        fields += [[f"c{index}", rng.choice(kind.types)] for index in range(rng.randint(2, 4))]
        if rng.random() < kind.blobs:
            fields.append(["b", "BLOB"])
        self._options = {**kind.drawn(rng), **(kind.newer(rng) if OTHER_JARS else {}), **kind.options}
        # Java 1.4 cannot read row ids in Avro.
        self._formats = ["parquet", "orc", *(["avro"] if OTHER_JARS or not kind.is_tracked else [])]
        if self._options["file.format"] not in self._formats:
            self._options["file.format"] = "parquet"
        if self._options.get("bucket", "-1") != "-1":
            # Otherwise Java's writers compact too.
            self._options["write-only"] = "true"
        self._create(fields)
        self._catalog = CatalogFactory.create({"warehouse": str(warehouse)})
        self._fields: list[list[Any]] = []
        self._look_at_schema()
        self._follow()

    def _create(self, fields: list[list[Any]]) -> None:
        self.steps.append(f"create {json.dumps(fields)} {self._partition_keys} {json.dumps(self._options)}")
        self._java.call(
            "create", warehouse=str(self._warehouse), fields=fields, partition_keys=self._partition_keys,
            primary_keys=[*self._partition_keys, *self._kind.key] if self._kind.key else [], options=self._options,
        )  # fmt: skip
        if self._has_branches:
            for branch in self._kind.branches:
                self._java.call("branch", name=branch)
            names = {f"scan.fallback-{each}-branch": each for each in self._kind.branches}
            for branch in (None, *self._kind.branches):
                changes = [["set", *each] for each in names.items()]
                self._java.call("alter", changes=changes, branch=branch)

    @property
    def table(self) -> Any:
        """The table, or the branch that changes, under its latest schema."""
        if self._branch not in self._handles:
            name = f"d.t$branch_{self._branch}" if self._branch else "d.t"
            self._handles[self._branch] = self._catalog.get_table(name)
        return self._handles[self._branch]

    def live(self, rounds: int = 4) -> None:
        """Change and compact the table; Java and ours compact by turns, and whose compaction is the first is drawn."""
        ours = self._rng.random() < 0.5
        for number in range(rounds):
            self._branch = self._rng.choice(self._kind.branches)
            if number == 0 or self._has_branches:
                self._write()
            for _ in range(self._rng.randint(1, 3)):
                self._change()
            has_vectors = "delete" in self._kind.changes and "deletion-vectors.enabled" in self._options
            if has_vectors and self._rng.random() < 0.5:
                self._delete()
            self._compact(ours=ours or (self._kind.needs_current and OTHER_JARS is None))
            ours = not ours
            if self._rng.random() < 0.3:
                self._do("expire", options={"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "1"})
                if not self._has_branches and self._rng.random() < 0.5:
                    # Of blobs that a data file refers to, only its extra file says so.
                    self._do("remove_orphans", older_than=_ALL_TIMES)
        self._write()
        self._check(self._java_rows())
        self._tally.histories += 1
        for first, then in pairwise(self._compacted_by):
            self._tally.orders[f"{first}, {then}"] += 1

    # Changes

    def _change(self) -> None:
        what = self._rng.choice(self._kind.changes)
        {
            "write": self._write,
            "delete": self._delete,
            "evolve": self._evolve,
            "alter": self._alter,
            "replace": self._replace,
            "option": self._set_option,
            "cluster by": self._cluster_by,
        }[what]()

    def _write(self) -> None:
        # The order of records of one key in one snapshot is that of no rule, where that of the snapshots counts.
        count = 1 if "sequence.snapshot-ordering" in self._options else self._rng.choice([1, 2, 2, 4])
        sizes = [1, 2, 3, 8, 30, *([300] if "clustering.incremental" in self._options else [])]
        flushes = [self._rows(self._rng.choice(sizes)) for _ in range(count)]
        if self._rng.random() < 0.5 or not self._kind.is_written_here:
            self._tally.commits += 1
            self._do("write", flushes=flushes)
        else:
            self._write_here(flushes)

    def _write_here(self, flushes: list[list[Row]]) -> None:
        self._tally.commits += 1
        self._writers += 1
        self._end_waiting()
        self.steps.append(f"ours writes {json.dumps(flushes)}")
        write(self.table, flushes, f"ours-{self._writers}", None)

    def _rows(self, count: int, partition: int | None = None) -> list[Row]:
        rows: dict[Any, Row] = {}
        names = [name for name, _ in self._fields]
        kinds = ["+I", "+I", "+U", "-D"] if self._kind.key and not self._only_adds else ["+I"]
        for _ in range(count):
            self._written += 1
            row = [self._rng.choice(kinds), *(self._value(name, kind, partition) for name, kind in self._fields)]
            where = tuple(row[1 + names.index(name)] for name in (*self._partition_keys, *self._kind.key))
            key = (where, None if self._kind.key else self._written)
            if key in rows:
                continue
            rows[key] = row
            if self._is_first_row and key in self._of_keys:
                continue
            if self._numbers is not None:
                self._numbers.discard(self._of_keys.pop(key, -1))
                if row[0] != "-D":
                    self._numbers.add(self._written)
                    self._of_keys[key] = self._written
        return list(rows.values())

    def _value(self, name: str, kind: Any, partition: int | None = None) -> Any:
        if name == "n":
            return self._written
        if name == "p":
            chosen = self._rng.randrange(3) if partition is None else partition
            return f"2024010{chosen + 1}" if self._has_branches else chosen
        if name in self._kind.key:
            return self._rng.randrange(12)
        return _value_of(kind, self._rng)

    def _delete(self) -> None:
        if self._kind.is_evolving:
            self._delete_by_id()
            return
        flushes = [self._rows(2)] if self._rng.random() < 0.3 else []
        self._do("delete", seed=self._rng.randrange(1000), flushes=flushes)
        self._numbers = None

    def _delete_by_id(self) -> None:
        ids = [int(row[-2]) for row in self._java_rows()["rows"]]
        if not ids or "deletion-vectors.enabled" not in self._options:
            return
        chosen = sorted(self._rng.sample(ids, self._rng.randint(1, min(len(ids), 4))))
        self.steps.append(f"ours deletes {chosen}")
        builder = self.table.new_batch_write_builder()
        commit = builder.new_commit()
        commit.commit(builder.new_update().delete_by_row_id(chosen))
        commit.close()
        self._numbers = None

    def _replace(self) -> None:
        """Overwrite a partition or all, or drop it."""
        partition = self._rng.randrange(3)
        if not self._partition_keys:
            if self._rng.random() < 0.5:
                self._do("overwrite", partition={}, flushes=[self._rows(self._rng.randint(1, 9))])
        elif self._rng.random() < 0.5:
            self._do("drop_partitions", partitions=[{"p": str(partition)}])
        else:
            self._do("overwrite", partition={"p": str(partition)}, flushes=[self._rows(4, partition)])
        self._numbers = None

    def _evolve(self) -> None:
        """Write some columns of rows that are there: Java those of a file, ours those of some rows."""
        names = self._columns()
        columns = self._rng.sample(names, self._rng.randint(1, min(2, len(names))))
        types = dict(map(tuple, self._fields))
        if all(types[name] == "BLOB" for name in columns):  # which Java 1.4 cannot write alone
            columns.append(next(name for name in names if types[name] != "BLOB"))
        if self._rng.random() < 0.6:
            rows = [["+I", *(_value_of(types[name], self._rng) for name in columns)] for _ in range(5)]
            self._do("evolve", columns=columns, rows=rows, range=self._rng.randrange(10))
        else:
            self._evolve_here(columns)

    def _columns(self) -> list[str]:
        return [name for name, _ in self._fields if name not in ("n", "p")]

    def _evolve_here(self, columns: Sequence[str]) -> None:
        types = dict(map(tuple, self._fields))
        # pypaimon's writer of Avro files does not take arrays, maps and rows.
        nested = self._options["file.format"] != "avro"
        columns = [name for name in columns if types[name] != "BLOB" and (nested or isinstance(types[name], str))]
        ids = [int(row[-2]) for row in self._java_rows()["rows"]]
        if not ids or not columns:
            return
        chosen = sorted(self._rng.sample(ids, min(len(ids), self._rng.randint(1, 5))))
        values = {name: [_value_of(types[name], self._rng) for _ in chosen] for name in columns}
        self.steps.append(f"ours updates {chosen}: {json.dumps(values)}")
        table = self.table
        fields = {each.name: each.type for each in table.fields}
        arrays = {"_ROW_ID": pa.array(chosen, pa.int64())}
        for name in columns:
            kind = arrow_type(fields[name])
            arrays[name] = pa.array([arrow_value(each, str(fields[name]), kind) for each in values[name]], kind)
        builder = table.new_batch_write_builder()
        messages = builder.new_update().with_update_type(columns).update_by_arrow_with_row_id(pa.table(arrays))
        commit = builder.new_commit()
        commit.commit(messages)
        commit.close()

    def _alter(self) -> None:
        fixed = {"n", "p", "b", *self._kind.key, *self._options.get("clustering.columns", "").split(",")}
        names = [name for name, _ in self._fields if name not in fixed]
        what = self._rng.choice(["add", "rename", "widen", "drop"])
        self._renamed += 1
        new = f"x{self._renamed}"
        types = dict(map(tuple, self._fields))
        if what == "add" or len(names) < 2:
            change = ["add", new, self._rng.choice(self._kind.types)]
        else:
            name = self._rng.choice(names)
            wider = WIDER.get(types[name]) if isinstance(types[name], str) else None
            if what == "widen" and not wider:
                return
            change = {"rename": ["rename", name, new], "drop": ["drop", name]}.get(what) or [
                "type", name, self._rng.choice(wider or ())
            ]  # fmt: skip
        self._changed([change])

    def _set_option(self) -> None:
        if self._rng.random() < 0.5:
            self._set(**{"file.format": self._rng.choice(self._formats)})
        else:
            self._set(**{"target-file-size": self._rng.choice(["2 kb", "8 kb", "128 mb"])})

    def _cluster_by(self) -> None:
        # Those that were dropped or renamed are errors.
        there = {name for name, _ in self._fields}
        self._set(**_clustering(self._rng, [name for name in ("n", "c0", "c1") if name in there]))

    def _set(self, **options: str) -> None:
        self._options |= options
        self._changed([["set", name, given] for name, given in options.items()])

    def _changed(self, changes: list[list[Any]]) -> None:
        # Streams keep the schema that they were opened with, so what is written under the new one is for others.
        self._compare_news()
        self._do("alter", changes=changes)
        self._end_waiting(tolerated=True)
        self._look_at_schema()
        self._follow()

    def _look_at_schema(self) -> None:
        self._handles.clear()
        self._fields = [[each["name"], each["json"]] for each in self._java.call("schema")["fields"]]

    # Compactions

    def _compact(self, *, ours: bool) -> None:
        before, chain = self._java_rows(), self._java_chain()
        due = set(self._numbers or ())
        self._check_numbers(before)
        self._java_news()
        self._compare_due()
        full = self._rng.random() < 0.5
        meanwhile: list[dict[str, Any]] = []
        if ours:
            self._ours_compacts(full, meanwhile)
        else:
            self._java_compacts(full, before, meanwhile)
        after = self._java_rows()
        assert meanwhile or self._java_chain() == chain, "the chain reads otherwise"
        if before["files"] != after["files"] and (ours or not meanwhile):
            self._compacted_by.append("ours" if ours else "java")
            self._tally.compactions[self._compacted_by[-1]] += 1
        there = meanwhile[0] if meanwhile else before
        if self._kind.is_shown_late:
            self._shown = due
        else:
            expected = self._kept(there)
            assert self._kept(after) == expected, _differences(expected, self._kept(after))
        if self._kind.is_evolving:
            numbers = _numbers_of_ids(after)
            assert all(numbers[row_id] >= number for row_id, number in _numbers_of_ids(there).items())
        if ours and self._is_in_order:
            assert _by_bucket(after) == _by_bucket(there), "the rows of a bucket have another order"
        if not meanwhile:
            assert not (news := self._java_news()), f"Java's stream hands out a compaction: {news}"
        if self._clusters and full and not meanwhile:
            answer = self._end_waiting({"do": "due_clusters", "full": True})
            assert answer is not None and not answer["units"], f"due after a full compaction: {answer}"
        self._check(after)
        self._compare_news()

    @property
    def _is_partial_update(self) -> bool:
        return self._options.get("merge-engine") == "partial-update"

    @property
    def _is_first_row(self) -> bool:
        return self._options.get("merge-engine") == "first-row"

    @property
    def _only_adds(self) -> bool:
        return self._is_partial_update or self._is_first_row

    @property
    def _is_in_order(self) -> bool:
        """Whether the rows of a bucket stay in their order, which full compactions of Java do not heed: they take files
        from a heap as it is (BucketedAppendCompactManager.FullCompactTask).
        """
        return self._kind is KINDS["bucketed"] and self._options.get("bucket-append-ordered") != "false"

    @property
    def _clusters(self) -> bool:
        return "clustering.incremental" in self._options and self._options.get("bucket", "-1") == "-1"

    def _java_compacts(self, full: bool, before: dict[str, Any], meanwhile: list[dict[str, Any]]) -> None:
        what, options = "cluster" if self._clusters else "compact", {"write-only": "false"}
        if not self._kind.is_shown_late and self._rng.random() < 0.3:
            self._race(before, meanwhile, do=what, options=options, full=full or self._kind is KINDS["bucketed"])
        elif self._kind is KINDS["bucketed"] and not full:
            self._compact_in_rounds(options)
        else:
            self._do(what, options=options, full=full)

    def _compact_in_rounds(self, options: Options) -> None:
        """What is due in buckets of an append table.

        If the file of a first round is not large, it may be among those of a second one in the same commit, which then
        deletes the file before it adds it. Java refuses that commit of its own (BucketedAppendCompactManager,
        AppendOnlyWriter.prepareCommit, FileEntry.mergeEntries), and a compaction of all takes one round.
        """
        try:
            self._end_waiting({"do": "compact", "options": options, "full": False})
        except JavaError as error:
            if "Trying to add file" not in str(error):
                raise
            self._tally.refused["Java's second round of a bucket in one commit"] += 1
            self._do("compact", options=options, full=True)

    def _race(self, before: dict[str, Any], meanwhile: list[dict[str, Any]], **command: Any) -> None:
        """Ours commits between Java's plan and Java's commit; `OUTCOMES` says what becomes of that."""
        self.steps.append(f"java prepares {json.dumps(command)}")
        answer = self._end_waiting({**command, "branch": self._branch, "prepare": True})
        assert answer is not None
        change = self._rng.choice([each for each in OUTCOMES if self._is_made_here(each)])
        self.steps.append(f"ours meanwhile: {change}")
        {
            "write": lambda: self._write_here([self._rows(2)]),
            "compact": lambda: Compaction(PaimonTable(self.table), full=True).run(),
            "evolve": lambda: self._evolve_here(self._columns()[:2]),
            "delete": self._delete_by_id,
        }[change]()
        found = self._java_rows()
        meanwhile.append(found)
        assert change != "compact" or self._kept(found) == self._kept(before), "ours compacts, and rows change"
        is_refused = False
        try:
            self._end_waiting({"do": "commit_prepared"})
        except JavaError as error:
            if not any(words in str(error) for words in CONFLICTS):
                raise
            is_refused = True
        what = "replaced" if set(answer["files"]) - set(found["files"]) else "kept"
        self._tally.races[f"{change}, {what}: {'refused' if is_refused else 'accepted'}"] += 1
        expected = OUTCOMES[change][what]
        assert expected in (is_refused, None), f"Java's commit after {change} ({what} files): refused {is_refused}"

    def _is_made_here(self, change: str) -> bool:
        if change in ("evolve", "delete"):
            return self._kind.is_evolving and (change == "evolve" or "deletion-vectors.enabled" in self._options)
        return change == "compact" or self._kind.is_written_here

    def _ours_compacts(self, full: bool, meanwhile: list[dict[str, Any]]) -> None:
        commits = self._rng.random() < 0.3
        order = None
        if self._kind is KINDS["sorted"]:
            names = [name for name, _ in self._fields if name != "p"]
            strategy = self._rng.choice(["auto", "order", "zorder", "hilbert"])
            order = sort_request("compact", self._rng.sample(names, self._rng.randint(1, min(3, len(names)))), strategy)

        def commit_once() -> None:
            if commits and not meanwhile:
                self.steps.append("ours meanwhile:")
                self._meanwhile()
                meanwhile.append(self._java_rows())
                self._tally.meanwhile += 1

        self.steps.append(f"ours compacts {'all' if full else ''}")
        compaction = Compaction(PaimonTable(self.table), full=full, new_picker=sort_picker(order))
        with _pieces(small=self._rng.random() < 0.5):
            report = compaction.run(check=commit_once)
        self._tally.conflicts += len(report.conflicts)
        assert meanwhile or not report.conflicts, report

    def _meanwhile(self) -> None:
        """What Java does between the plan and the commit of ours."""
        change = self._rng.choice([each for each in self._kind.changes if each in ("write", "delete", "evolve")])
        if change == "evolve" and self._rng.random() < 0.5:
            self._evolve()
        elif change == "delete":
            self._delete()
        else:
            self._do("write", flushes=[self._rows(2)])

    def _kept(self, found: dict[str, Any]) -> list[str]:
        """The rows that a compaction leaves. With data evolution, a sequence number is that of a file."""
        rows = [row[:-1] if self._kind.is_evolving else row for row in found["rows"]]
        return sorted(json.dumps(row) for row in rows)

    # Comparisons

    def _compare_due(self) -> None:
        """The same files are due."""
        if self._options.get("bucket", "-1") != "-1" or self._kind is KINDS["sorted"]:
            return
        clusters = "clustering.incremental" in self._options
        full = clusters and self._rng.random() < 0.3
        answer = self._end_waiting({"do": "due_clusters" if clusters else "due", "full": full})
        assert answer is not None
        javas = Counter(frozenset(unit["files"]) for unit in answer["units"])
        ours, files = _due(self.table, full=full)
        if full:
            # Each full compaction of ours drops rows that are deleted; Java leaves a clustered highest level alone.
            ours = Counter({unit: 1 for unit in ours if unit in javas or not any(files[name][2] for name in unit)})
        if not clusters and not self._kind.is_evolving:
            ours, javas = _by_size(ours, files), _by_size(javas, files)
        assert ours == javas, f"due here only: {ours - javas}, in Java only: {javas - ours}"

    def _check_numbers(self, found: dict[str, Any]) -> None:
        """No row that was written is lost or doubled."""
        columns = found["columns"]
        numbers = [row[columns.index("n")] for row in found["rows"]]
        assert len(set(numbers)) == len(numbers), f"doubled: {Counter(numbers).most_common(3)}"
        if self._kind.is_shown_late:
            assert set(numbers) == self._shown, sorted(self._shown ^ set(numbers))
            return
        if self._numbers is not None and not self._has_branches:
            assert set(numbers) == self._numbers, sorted(self._numbers ^ set(numbers))
        self._numbers = set(numbers)
        key = [columns.index(name) for name in (*self._partition_keys, *self._kind.key)]
        self._of_keys = {
            (tuple(row[each] for each in key), None if self._kind.key else number): number
            for row, number in zip(found["rows"], numbers, strict=True)
        }

    def _check(self, found: dict[str, Any]) -> None:
        """Ours reads what Java reads."""
        self._check_numbers(found)
        types = dict(zip(found["columns"], found["types"], strict=True))
        javas = sorted(
            json.dumps([wanted_value(each, kind) for each, kind in zip(row, found["types"], strict=True)])
            for row in found["rows"]
        )
        view = "row_tracking" if self._kind.is_tracked else None
        if self._is_partial_update:
            return  # Its streams need a changelog.
        builder = stream_read_builder(self.table, view=view).with_raw(self._is_first_row)
        ours = _read(builder, builder.new_streaming_scan().plan(), types)
        numbers = set(self._numbers or ())
        if self._kind.is_shown_late and numbers != self._shown:
            # A first plan has what is not compacted too.
            assert {row[found["columns"].index("n")] for row in ours} == numbers
            numbers &= self._shown
        else:
            assert sorted(map(json.dumps, ours)) == javas, _differences(javas, sorted(map(json.dumps, ours)))
        self._tally.rows += len(javas)
        if numbers:
            self._check_filter(self._rng.choice(sorted(numbers)))

    def _check_filter(self, number: int) -> None:
        """Statistics and indexes find the row."""
        answer = self._end_waiting({"do": "rows", "filter": ["n", "=", number], "branch": self._branch})
        assert answer is not None
        assert [row[answer["columns"].index("n")] for row in answer["rows"]].count(number) == 1
        builder = stream_read_builder(self.table).with_raw(self._is_first_row)
        unmatched = "drop" if self._is_first_row else "delete"
        builder = builder.with_filter(builder.new_predicate_builder().equal("n", number), unmatched=unmatched)
        ours = _read(builder, builder.new_streaming_scan().plan(), {"n": "BIGINT"})
        assert ours == [[number]], (number, ours)

    def _java_rows(self) -> dict[str, Any]:
        view = "row_tracking" if self._kind.is_tracked else None
        answer = self._end_waiting({"do": "rows", "system_table": view, "branch": self._branch})
        assert answer is not None
        return answer

    def _java_chain(self) -> list[str]:
        """The rows of the branches together, as Java's batch reads merge them."""
        if not self._has_branches:
            return []
        answer = self._end_waiting({"do": "rows"})
        assert answer is not None
        return sorted(map(json.dumps, answer["rows"]))

    def _follow(self) -> None:
        """Both streams follow the table from its latest snapshot on, under its latest schema."""
        if self._has_branches:
            return
        self._java.call("follow", name="live", options={"scan.mode": "latest"})
        self._java.call("news", name="live")
        self._stream = stream_read_builder(self.table).with_start("latest").with_on_schema_change("ignore")
        # Of the records as they were written, as Java's core reads them.
        self._stream = self._stream.with_raw(self._only_adds).with_include_row_kind()
        self._scan = self._stream.new_streaming_scan()
        self._types = {each["name"]: each["type"] for each in self._java.call("schema")["fields"]}
        self._scan.plan()
        self._news: list[str] = []

    def _java_news(self) -> list[str]:
        if self._has_branches:
            return []
        answer = self._end_waiting({"do": "news", "name": "live"})
        assert answer is not None and answer["end"] == "waiting", answer
        found = []
        for split in (split for plan in answer["plans"] for split in plan["splits"]):
            for kind, *values in split["rows"]:
                row = {
                    name: wanted_value(each, self._types[name]) for name, each in zip(self._types, values, strict=True)
                }
                # With data evolution, Java leaves partition columns null where several files hold none of its columns.
                lacking = {name: each for name, each in split["partition"].items() if row[name] is None}
                found.append(json.dumps([kind, *{**row, **lacking}.values()]))
        self._news += found
        return found

    def _compare_news(self) -> None:
        if self._has_branches:
            return
        self._java_news()
        ours = []
        while (plan := self._scan.plan()) is not None:
            ours += _read(self._stream, plan, {"_row_kind": "", **self._types})
        javas, self._news = sorted(self._news), []
        assert sorted(map(json.dumps, ours)) == javas, _differences(javas, sorted(map(json.dumps, ours)))

    # Java

    def _do(self, what: str, **arguments: Any) -> None:
        """A command of Java, which waits for the next one whose answer matters."""
        self.steps.append(f"java {what} {json.dumps(arguments)}")
        self._waiting.append({"do": what, "branch": self._branch, **arguments})

    def _end_waiting(self, last: Command | None = None, *, tolerated: bool = False) -> dict[str, Any] | None:
        commands, self._waiting = [*self._waiting, *([last] if last else [])], []
        if not commands:
            return None
        answers: list[dict[str, Any]] = self._java.call("several", commands=commands)["answers"]
        for command, answer in zip(commands, answers, strict=True):
            if "error" in answer:
                if not tolerated:
                    raise JavaError(answer["error"])
                self._tally.refused[f"{command['do']}: {answer['error']['message']}"[:160]] += 1
        return answers[-1]


@contextmanager
def _pieces(*, small: bool) -> Iterator[None]:
    """Read and write files of a few rows in several pieces, as large ones are."""
    rows, size = (3, 100) if small else (file_reading._BATCH_ROWS, rolling_files.MOST_PIECE_BYTES)
    with patch.object(file_reading, "_BATCH_ROWS", rows), patch.object(rolling_files, "MOST_PIECE_BYTES", size):
        yield


def _value_of(kind: Any, rng: random.Random) -> Any:
    """Never what is not written here into ORC files: NaN, and fractions of a millisecond before 1970."""
    found = value(kind, rng, kind not in ("FLOAT", "DOUBLE"))
    while kind == "TIMESTAMP(6)" and str(found).startswith("1969"):
        found = value(kind, rng, True)
    return found


def _read(builder: StreamReadBuilder, plan: Any, types: dict[str, str]) -> list[Row]:
    if plan is None:
        return []
    data = builder.new_read().to_arrow(plan.splits())
    columns = [column_values(data[name], kind) for name, kind in types.items()]
    return [list(row) for row in zip(*columns, strict=True)]


def _numbers_of_ids(found: dict[str, Any]) -> dict[int, int]:
    """The sequence number of each row id, which with data evolution is the greatest of the files of the row."""
    return {int(row[-2]): int(row[-1]) for row in found["rows"]}


def _by_bucket(found: dict[str, Any]) -> dict[str, list[Row]]:
    buckets: dict[str, list[Row]] = {}
    start = 0
    for bucket, end in found["ends"]:
        buckets.setdefault(bucket, []).extend(found["rows"][start:end])
        start = end
    # A bucket whose rows are all deleted goes with its files.
    return {bucket: rows for bucket, rows in buckets.items() if rows}


def _differences(javas: list[str], ours: list[str]) -> str:
    wanted, found = Counter(javas), Counter(ours)
    lines = [f"- {each}" for each in (wanted - found).elements()][:12]
    return "\n".join([*lines, *[f"+ {each}" for each in (found - wanted).elements()][:12]])


Facts = dict[str, tuple[str, int, bool]]
"""The partition of each file, its size, and whether it has a deletion vector."""


def _by_size(units: Counter[frozenset[str]], files: Facts) -> Counter[tuple[tuple[str, int, bool], ...]]:
    """Packs of files by their sizes: of files of one size, each may be in a pack or be left.

    All files with deletion vectors are due, and Java has those of one index file in one pack.
    """
    packs = [sorted(files[name] for name in unit) for unit in units.elements()]
    vectors = sorted(file for pack in packs for file in pack if file[2])
    return Counter([tuple(vectors), *(tuple(pack) for pack in packs if not pack[0][2])])


def _due(table: Any, *, full: bool) -> tuple[Counter[Any], Facts]:
    """The files of each of our tasks, and facts of all files."""
    given = PaimonTable(table)
    directory = given.new_directory()
    snapshot = directory.snapshots.get_latest_snapshot()
    if snapshot is None:
        return Counter(), {}
    picker = task_picker(given, FileReader(given, directory, lambda: None))
    chosen = ChosenPartitions(given, None)
    index = VectorIndex.of(given, directory, snapshot)
    buckets = list(index.attached(live_buckets(given, LiveEntries().look(directory, snapshot), chosen.among)))
    files = {
        file.name: (repr(bucket.partition), file.size, file.deletions is not None)
        for bucket in buckets
        for file in bucket.files
    }
    return Counter(frozenset(file.name for file in task.files) for task in picker.tasks(buckets, full=full)), files
