"""Carries out a random history with live Java; numbers of the history are taken modulo what the table has."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pypaimon.streaming.model.time_zone import TIME_ZONE
from support.java.families import located
from support.java.histories import NESTED, WIDER, History
from support.java.live import JavaError, LiveJava
from support.java.values import value

KEYS = 5
PARTITIONS = 3
BRANCH = "b"
CONSUMER = "c"
ADDED = ("INT", "STRING", "DOUBLE", "DECIMAL(10, 2)", NESTED["row"])


@dataclass(frozen=True, slots=True)
class Written:
    """What a history left behind.

    Attributes:
        warehouse: Where the table `d.t` lies.
        refused: Steps that Java refused, with its reason: they changed nothing that a reader could see differently.
    """

    warehouse: Path
    refused: tuple[str, ...]

    def directory(self, branch: str | None = None) -> Path:
        table = self.warehouse / "d.db" / "t"
        return table / "branch" / f"branch-{branch}" if branch else table

    def has_branch(self) -> bool:
        return self.directory(BRANCH).is_dir()

    def snapshots(self, branch: str | None = None, kind: str = "snapshot") -> dict[int, dict[str, Any]]:
        """Snapshots (or long-lived changelogs) that exist, by id."""
        return snapshot_files(self.directory(branch) / kind)

    def consumers(self) -> dict[str, str]:
        """The consumer files of the table and its branches: path in the warehouse to text."""
        paths = (path for path in self.warehouse.rglob("consumer-*") if path.is_file())
        return {str(path.relative_to(self.warehouse)): path.read_text() for path in paths}

    @contextmanager
    def consumers_kept(self) -> Iterator[None]:
        """What happens meanwhile to consumer files is undone."""
        before = self.consumers()
        try:
            yield
        finally:
            for name in self.consumers().keys() - before.keys():
                (self.warehouse / name).unlink()
            for name, text in before.items():
                (self.warehouse / name).write_text(text)


def snapshot_files(directory: Path) -> dict[int, dict[str, Any]]:
    """The numbered JSON files of a directory, by number."""
    paths = [path for path in directory.glob("*-*") if path.name.rpartition("-")[2].isdigit()]
    return {number: json.loads(path.read_text()) for number, path in sorted((_number(path), path) for path in paths)}


def _number(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def carry_out(
    java: LiveJava, history: History, warehouse: Path, between: Callable[[], None], writer: Writer | None = None
) -> Written:
    """Creates the table and runs every step, by Java or by `writer`; `between` is called after each of these.

    Raises:
        JavaError: Java refuses to create such a table.
    """
    writer = writer or Writer(java, history, warehouse)
    java.call(
        "create",
        warehouse=str(warehouse),
        fields=[list(each) for each in history.fields],
        partition_keys=list(history.partition_keys),
        primary_keys=list(history.primary_keys),
        options=located(history.options, str(warehouse)) | {TIME_ZONE: history.zone},
        zone=history.zone,
    )
    between()
    for what, arguments in history.steps:
        writer.run(what, arguments)
        between()
    return Written(warehouse, tuple(writer.refused))


@dataclass
class Writer:
    """Has live Java write the steps of a history."""

    java: LiveJava
    history: History
    warehouse: Path
    refused: list[str] = field(default_factory=list)
    written: int = 0
    altered: int = 0
    assigns: bool = False
    """Whether Paimon's assigner gives keys their buckets, where they are dynamic."""

    def run(self, what: str, arguments: dict[str, Any]) -> None:
        try:
            getattr(self, f"do_{what}")(**arguments)
        except JavaError as error:
            self.refused.append(f"{what}: {error}")

    def do_write(self, flushes: list[tuple[int, int]], watermark: int | None = None, branch: str | None = None) -> None:
        rows = self._rows(flushes, branch)
        mark = None if watermark is None else 1000 * watermark
        self.java.call("write", flushes=rows, watermark=mark, branch=branch, assigns=self.assigns)

    def do_compact(self, full: bool) -> None:
        self.java.call("compact", full=full, options={"write-only": "false"})

    def do_evolve(self, range_: int, seed: int) -> None:
        fields = {each["name"]: each["json"] for each in self.java.call("schema")["fields"]}
        source = random.Random(seed)
        names = [name for name in fields if name not in self.history.partition_keys]
        columns = source.sample(names, source.randint(1, len(names)))
        if all(fields[name] == "BLOB" for name in columns):  # which Java 1.4 cannot write alone
            columns.append(next(name for name in names if fields[name] != "BLOB"))
        rows = [["+I", *(value(fields[name], source, True) for name in columns)] for _ in range(7)]
        self.java.call("evolve", columns=columns, rows=rows, range=range_)

    def do_delete(self, seed: int, flushes: list[tuple[int, int]]) -> None:
        self.java.call("delete", seed=seed, flushes=self._rows(flushes, None))

    def do_overwrite(self, flushes: list[tuple[int, int]], partition: int | None = None) -> None:
        where = {} if partition is None else self._partition(partition)
        spec = {name: _spec_text(text) for name, text in where.items()}
        rows = self._rows(flushes, None, where)
        self.java.call("overwrite", partition=spec, flushes=rows, assigns=self.assigns)

    def do_drop_partitions(self, seed: int) -> None:
        spec = {name: _spec_text(text) for name, text in self._partition(seed).items()}
        self.java.call("drop_partitions", partitions=[spec])

    def do_truncate(self) -> None:
        self.java.call("truncate")

    def do_expire(self, retain: int, changelogs: int | None) -> None:
        options = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": str(retain)}
        if changelogs is not None:
            options |= {"changelog.num-retained.min": "1", "changelog.num-retained.max": str(retain + changelogs)}
        self.java.call("expire", options=options)

    def do_rollback(self, pick: int) -> None:
        ids = list(snapshot_files(self.warehouse / "d.db" / "t" / "snapshot"))
        if ids:
            self.java.call("rollback", snapshot=ids[pick % len(ids)])

    def do_consumer(self, pick: int) -> None:
        ids = list(snapshot_files(self.warehouse / "d.db" / "t" / "snapshot"))
        latest = max(ids, default=0)
        ids += [latest + 1, latest + 2]
        self.java.call("consumer", name=CONSUMER, next=ids[pick % len(ids)])

    def do_branch(self, pick: int) -> None:
        ids = list(snapshot_files(self.warehouse / "d.db" / "t" / "snapshot"))
        if ids and not (self.warehouse / "d.db" / "t" / "branch" / f"branch-{BRANCH}").is_dir():
            self.java.call("tag", name="v", snapshot=ids[pick % len(ids)])
            self.java.call("branch", name=BRANCH, tag="v")
        if ids:
            self.do_write([(3, pick)], branch=BRANCH)

    def do_branch_compact(self, pick: int) -> None:
        self.java.call("compact", full=pick % 2 == 0, branch=BRANCH, options={"write-only": "false"})

    def do_branch_alter(self, pick: int) -> None:
        self.altered += 1
        self.java.call("alter", changes=[["add", f"x{self.altered}", ADDED[pick % len(ADDED)]]], branch=BRANCH)

    def do_alter(self, change: tuple[str, int]) -> None:
        what, pick = change
        self.altered += 1
        fields = {each["name"]: each["json"] for each in self.java.call("schema")["fields"]}
        fixed = {*self.history.primary_keys, *self.history.partition_keys}
        names = [name for name in fields if name not in fixed]
        self.java.call("alter", changes=_changes(what, pick, fields, names, f"x{self.altered}"))

    def _rows(
        self, flushes: list[tuple[int, int]], branch: str | None, partition: dict[str, Any] | None = None
    ) -> list[list[list[Any]]]:
        fields = [(each["name"], each["json"]) for each in self.java.call("schema", branch=branch)["fields"]]
        return [
            [self._row(fields, source, partition or {}) for _ in range(count)]
            for count, seed in flushes
            for source in [random.Random(seed)]
        ]

    def _row(self, fields: list[tuple[str, Any]], source: random.Random, partition: dict[str, Any]) -> list[Any]:
        self.written += 1
        kinds = row_kinds(self.history.family, self.history.options)
        odd = self.history.options.get("merge-engine") != "aggregation" and not any(
            name.endswith("aggregate-function") for name in self.history.options
        )
        sequence = self.history.options.get("sequence.field", "").split(",")
        wide = KEYS if len(self.history.steps) % 2 else 3 * KEYS
        row: list[Any] = [source.choice(kinds)]
        for name, kind in fields:
            if name in partition:
                row.append(partition[name])
            elif name in self.history.partition_keys:
                row.append(value(kind, random.Random(source.randrange(PARTITIONS)), False))
            elif name in self.history.primary_keys:
                row.append(value(kind, random.Random(f"{name}{source.randrange(wide)}"), False))
            elif name == "n":
                row.append(self.written)
            else:
                # As a sequence, NaN is the greatest since Java 2; 1.4 finds it equal to every number.
                given = value(kind, source, odd and name not in sequence)
                # A text of nothing that `listagg` meets first stays in Java 1.4; 2.1 passes blank texts over.
                joined = self.history.options.get(f"fields.{name}.aggregate-function") == "listagg"
                row.append("a" if joined and given == "" else given)
        return row

    def _partition(self, seed: int) -> dict[str, Any]:
        kinds = dict(self.history.fields)
        source = random.Random(seed)
        names = self.history.partition_keys[: 1 + seed % 2]
        return {name: value(kinds[name], random.Random(source.randrange(PARTITIONS)), False) for name in names}


def row_kinds(family: str, options: dict[str, str]) -> list[str]:
    """The row kinds that a table's merge engine takes."""
    engine = options.get("merge-engine", "append")
    if engine == "append":
        return ["+I"]
    if "aggregation.remove-record-on-delete" in options:
        return ["+I", "+U", "-D"]
    deletes = engine in ("deduplicate", "aggregation") or any(
        "delete" in name or "sequence-group" in name for name in options if name != "deletion-vectors.enabled"
    )
    return ["+I", "+I", "+U", "-U", "-D"] if deletes else ["+I", "+U"]


def _spec_text(given: Any) -> str:
    if given is None:
        return "__DEFAULT_PARTITION__"
    return str(given).lower() if isinstance(given, bool) else str(given).replace("T", " ")


def _changes(what: str, pick: int, fields: dict[str, Any], names: list[str], new: str) -> list[list[Any]]:
    if what == "add" or not names:
        return [["add", new, ADDED[pick % len(ADDED)]]]
    name = names[pick % len(names)]
    if what == "rename":
        return [["rename", name, new]]
    if what == "widen":
        wider = WIDER.get(fields[name]) if isinstance(fields[name], str) else None
        return [["type", name, wider[pick % len(wider)]]] if wider else []
    if what == "nested":
        rows = [each for each in names if isinstance(fields[each], dict) and fields[each]["type"] == "ROW"]
        return [_nested_change(rows[0], fields[rows[0]]["fields"], pick, new)] if rows else []
    return [[what, name]]


def _nested_change(row: str, fields: list[dict[str, Any]], pick: int, new: str) -> list[Any]:
    inner = fields[pick % len(fields)]["name"]
    return [["add", f"{row}.{new}", "INT"], ["drop", f"{row}.{inner}"], ["rename", f"{row}.{inner}", new]][pick % 3]
