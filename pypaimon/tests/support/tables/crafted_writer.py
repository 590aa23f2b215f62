"""A writer of crafted tables whose choices come from a seed: rows, overwrites, compactions, schema changes, expiry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, TypeVar

from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import Move, SchemaChange

from support.models.table import ADDS, KEY, PARTITION, POSTPONED, TOP_LEVEL, Column, Place, Record, merged
from support.tables.crafted_table import CraftedTable, WrittenFile

Choice = TypeVar("Choice")
ACTIONS = ("append", "hurry", "overwrite", "compact", "nothing", "alter", "expire")
KEYS = 7
NAMES = ("v", "n", "c", "d")
TABLES: dict[str, dict[str, Any]] = {
    "unaware": {"buckets": 0},
    "fixed": {"buckets": 3, "options": {"bucket-key": KEY}},
    "none": {"buckets": 2, "keyed": True},
    "input": {"buckets": 2, "keyed": True, "producer": "input"},
    "lookup": {"buckets": 2, "keyed": True, "producer": "lookup"},
    "full-compaction": {"buckets": 2, "keyed": True, "producer": "full-compaction"},
    "postponed": {"buckets": 2, "keyed": True, "postponed": True},
    "postponed-lookup": {"buckets": 2, "keyed": True, "postponed": True, "producer": "lookup"},
}
"""Kinds of tables: number of buckets, and whether they have keys, a changelog producer, pending records."""


class CraftedWriter:
    """Commits to a table.

    Args:
        buckets: How many there are; 0: none, rows lie in bucket 0.
        postponed: Records are first written to bucket -2.
    """

    def __init__(self, table: CraftedTable, *, buckets: int, producer: str, postponed: bool) -> None:
        self._table = table
        self._random = Random(0)
        self._buckets = buckets
        self._producer = producer
        self._postponed = postponed
        self._written = 0

    def act(self, action: str, seed: int) -> None:
        """Do one of `ACTIONS`; the same for the same seed."""
        self._random = Random(seed)
        getattr(self, action)()

    def choice(self, *values: Choice) -> Choice:
        return self._random.choice(values)

    # ---- commits ----

    def append(self) -> None:
        files, changelog = [], []
        for place, records in self._by_bucket(self._records()):
            if not self._table.keyed:
                files.append(self._file(place, records))
                continue
            cut = self._random.randrange(len(records))
            for flush in (records[:cut], records[cut:]):
                if flush:
                    files.append(self._file(place, _flushed(flush) if place[1] != POSTPONED else flush))
                    changelog += [self._file(place, _by_key(flush))] if self._producer == "input" else []
        self._commit("APPEND", files, (), changelog)

    def hurry(self) -> None:
        """More APPEND snapshots than are replayed one by one."""
        for _ in range(9):
            self.append()

    def overwrite(self) -> None:
        """One OVERWRITE snapshot: of everything, of a partition, or (without a primary key) of a single file."""
        live = self._live()
        places = sorted({file.place[0] for file in live}, key=str)
        partition = self.choice(None, *places) if self._table.partitioned else None
        removed = [file for file in live if partition in (None, file.place[0])]
        if removed and not self._table.keyed and self.choice(True, False):
            removed = [self.choice(*removed)]
        records = self.choice([], self._records())
        if partition is not None:
            records = [each for each in records if each.key[0] == partition]
        inserts = [Record("+I", each.key, each.sequence, each.values) for each in records]
        if self._table.keyed:
            inserts = list({record.key: record for record in inserts}.values())
        files = [self._file(place, _by_key(each)) for place, each in self._by_bucket(inserts)]
        self._commit("OVERWRITE", files, removed)

    def nothing(self) -> None:
        """A snapshot that changes no file; it may repair the total count."""
        self._commit(self.choice("ANALYZE", "APPEND"), recounted=self.choice(0, 0, -3, 5))

    def compact(self) -> None:
        added: list[WrittenFile] = []
        removed: list[WrittenFile] = []
        changelog: list[WrittenFile] = []
        places = sorted({file.place for file in self._live()}, key=str)
        for place in self._random.sample(places, self._random.randint(min(1, len(places)), len(places))):
            files = [file for file in self._live() if file.place == place]
            if not self._table.keyed:
                done = self._concatenated(place, files)
            elif place[1] == POSTPONED:
                done = self._moved(place, files)
            elif self._postponed:
                continue
            else:
                done = self._merged(place, files)
            for total, part in zip((added, removed, changelog), done, strict=True):
                total += part
        if removed:
            self._commit("COMPACT", added, removed, changelog)

    def alter(self) -> None:
        """A column is added, dropped, renamed, widened or moved."""
        columns = [each for each in self._table.columns.columns if each.name not in (KEY, PARTITION)]
        free = [name for name in NAMES if name not in {each.name for each in columns}]
        column, change = self.choice(*columns), self.choice("add", "drop", "rename", "widen", "move")
        if change == "add" and free:
            kind = AtomicType(self.choice("INT", "BIGINT", "STRING"))
            self._table.alter(SchemaChange.add_column(self.choice(*free), kind))
        elif change == "drop" and len(columns) > 1:
            self._table.alter(SchemaChange.drop_column(column.name))
        elif change == "rename" and free:
            self._table.alter(SchemaChange.rename_column(column.name, self.choice(*free)))
        elif change == "widen" and column.type == "INT":
            self._table.alter(SchemaChange.update_column_type(column.name, AtomicType("BIGINT")))
        elif change == "move" and self._table.columns.columns[0] != column:
            self._table.alter(SchemaChange.update_column_position(Move.first(column.name)))

    def expire(self) -> None:
        """Snapshots expire, but none that a consumer still has to read."""
        table = self._table
        most = min([table.latest, *table.consumers()])
        if most > table.earliest:
            table.expire(self._random.randint(table.earliest + 1, most))

    # ---- compactions ----

    def _concatenated(self, place: Place, files: Sequence[WrittenFile]) -> tuple[list[WrittenFile], ...]:
        """Files that follow each other, as one."""
        files = sorted(files, key=lambda file: file.meta.min_sequence_number)
        first = self._random.randrange(len(files))
        picked = files[first : first + self.choice(2, 3, len(files))]
        if len(picked) < 2:
            return [], [], []
        records = [record for file in picked for record in file.records]
        return [self._file(place, records, compacted=True)], list(picked), []

    def _merged(self, place: Place, files: Sequence[WrittenFile]) -> tuple[list[WrittenFile], ...]:
        """Level 0, but perhaps its newest file, and some of the levels above, into one level."""
        above = [file for file in files if file.level]
        newest = [file for file in files if not file.level]
        if newest and self.choice(False, False, True):
            newest.pop()
        levels = sorted({file.level for file in above})
        if not newest and len(levels) < 2:
            return [], [], []
        count = self._random.randint(0 if newest else 2, len(levels))
        if count < len(levels) and levels[count] == 1:
            count += 1
            level = 1
        else:
            level = levels[count] - 1 if count < len(levels) else TOP_LEVEL
        picked = [*newest, *(file for file in above if file.level in levels[:count])]
        drops_deletes = count == len(levels)
        records = list(_newest(picked).values())
        if drops_deletes:
            records = [record for record in records if record.kind in ADDS]
        changelog: list[Record] = []
        if self._producer == "lookup":
            changed = {record.key for file in newest for record in file.records}
            changelog = self._differences(merged(above), merged([*newest, *above]), changed)
        elif self._producer == "full-compaction" and level == TOP_LEVEL:
            before = merged(file for file in above if file.level == TOP_LEVEL)
            after = merged(picked)
            changelog = self._differences(before, after, {*before, *after}, equal=False)
        whole = len(picked) == 1 and len(records) == len(picked[0].records)
        if whole and picked[0].level < level and self._producer in ("none", "input"):
            return [self._table.upgraded(picked[0], level)], picked, []
        return self._run(place, records, level), picked, [self._file(place, changelog)] if changelog else []

    def _moved(self, place: Place, pending: Sequence[WrittenFile]) -> tuple[list[WrittenFile], ...]:
        """Pending records into the real buckets of their partition."""
        added: list[WrittenFile] = []
        removed, changelog = list(pending), []
        records = [record for file in pending for record in file.records]
        for number in range(self._buckets):
            home = place[0], number
            own = [record for record in records if record.key[1] % self._buckets == number]
            old = [file for file in self._live() if file.place == home]
            if not own:
                continue
            newest = {record.key: record for record in [*merged(old).values(), *sorted(own, key=_sequence)]}
            after = {key: record for key, record in newest.items() if record.kind in ADDS}
            added += self._run(home, list(after.values()), TOP_LEVEL)
            removed += old
            if self._producer != "none":
                found = self._differences(merged(old), after, {record.key for record in own})
                changelog += [self._file(home, found)] if found else []
        return added, removed, changelog

    def _run(self, place: Place, records: Sequence[Record], level: int) -> list[WrittenFile]:
        """A sorted run: one file, or two that do not overlap."""
        records = _by_key(records)
        cut = self._random.randint(0, len(records))
        parts = [part for part in (records[:cut], records[cut:]) if part]
        return [self._file(place, part, level=level, compacted=True) for part in parts]

    def _differences(self, before: Any, after: Any, keys: Iterable[Any], equal: bool = True) -> list[Record]:
        """The changelog of keys between two states; `equal`: also of rows that were written again as they were."""
        result = []
        for key in sorted(keys, key=lambda each: each[1]):
            old, new = before.get(key), after.get(key)
            if old is not None and new is not None and not equal and old.sequence == new.sequence:
                continue
            kinds = ("-U", "+U") if old is not None and new is not None else ("-D", "+I")
            result += [
                Record(kind, key, each.sequence, each.values)
                for kind, each in zip(kinds, (old, new), strict=True)
                if each is not None
            ]
        return result

    # ---- rows ----

    def _records(self) -> list[Record]:
        """Rows to write: of new keys, or changes of a few keys."""
        records = []
        for _ in range(self._random.randint(1, 5)):
            self._written += 1
            kind, number = "+I", self._written
            if self._table.keyed:
                kind, number = self.choice("+I", "+I", "+U", "-D", "-U"), self._random.randrange(KEYS)
            partition = self.choice("a", "b") if self._table.partitioned else None
            values = {each.id: self._value(each, number, partition) for each in self._table.columns.columns}
            records.append(Record(kind, (partition, number), self._written, values))
        return records

    def _value(self, column: Column, key: int, partition: str | None) -> Any:
        if column.name == KEY:
            return key
        if column.name == PARTITION:
            return partition
        if column.type == "STRING":
            return self.choice(f"{key}@{self._written}", f"{key}@{self._written}", None)
        return self.choice(self._written, None, (1 << 40) + self._written if column.type == "BIGINT" else -1)

    def _by_bucket(self, records: Iterable[Record]) -> list[tuple[Place, list[Record]]]:
        places: dict[Place, list[Record]] = {}
        for record in records:
            bucket = POSTPONED if self._postponed else record.key[1] % self._buckets if self._buckets else 0
            places.setdefault((record.key[0], bucket), []).append(record)
        return list(places.items())

    def _file(self, place: Place, records: Sequence[Record], **settings: Any) -> WrittenFile:
        return self._table.file(place, records, suffix=self.choice("parquet", "parquet", "orc"), **settings)

    def _live(self) -> list[WrittenFile]:
        return [file for file in self._table.live if isinstance(file, WrittenFile)]

    def _commit(self, kind: str, *files: Sequence[WrittenFile], recounted: int = 0) -> None:
        self._table.commit(kind, *files, merges_manifests=not self._random.randrange(6), recounted=recounted)


def _sequence(record: Record) -> int:
    return record.sequence


def _by_key(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.key[1], record.sequence))


def _newest(files: Iterable[WrittenFile]) -> dict[Any, Record]:
    records = sorted((record for file in files for record in file.records), key=_sequence)
    return {record.key: record for record in records}


def _flushed(records: Sequence[Record]) -> list[Record]:
    """What a writer makes of its buffer: the newest record of each key, in their order."""
    return _by_key({record.key: record for record in records}.values())
