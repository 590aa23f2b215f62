"""What a table of tests holds, and what its streams hand out: worked out row by row, in plain Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

TOP_LEVEL = 5
POSTPONED = -2
KEY, PARTITION = "k", "p"
ADDS = ("+I", "+U")

Place = tuple[str | None, int]
"""A (partition, bucket)."""


@dataclass(frozen=True)
class Column:
    id: int
    name: str
    type: str

    def value(self, record: Record) -> Any:
        """Its value in a record of any schema: found by field id, None where it was not there.

        Raises:
            OverflowError: The type of the column cannot hold it.
        """
        value = record.values.get(self.id)
        if self.type == "INT" and value is not None and not -(1 << 31) <= value < 1 << 31:
            raise OverflowError(f"{value} is no INT")
        return value


@dataclass(frozen=True)
class TableColumns:
    id: int
    columns: tuple[Column, ...]

    def named(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def find(self, field_id: int) -> Column | None:
        return next((column for column in self.columns if column.id == field_id), None)


@dataclass(frozen=True, eq=False)
class Record:
    """A record as a writer wrote it.

    Attributes:
        key: The key, by which the model knows it.
        sequence: The greater one of a key is the newer one.
        values: By field id, of all columns that the table had then.
    """

    kind: str
    key: tuple[str | None, int]
    sequence: int
    values: dict[int, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DataFile:
    """A data or changelog file.

    Attributes:
        level: Of the merge tree; 0 in append tables.
    """

    name: str
    place: Place
    level: int
    schema: TableColumns
    records: tuple[Record, ...]


@dataclass(frozen=True, eq=False)
class Commit:
    """A snapshot.

    Attributes:
        kind: APPEND, COMPACT, OVERWRITE or ANALYZE.
        added: Data files that it added, in the order of its manifest.
    """

    id: int
    kind: str
    schema: TableColumns
    added: tuple[DataFile, ...] = ()
    removed: tuple[DataFile, ...] = ()
    changelog: tuple[DataFile, ...] = ()
    live: tuple[DataFile, ...] = ()


@dataclass(frozen=True, eq=False)
class Handed:
    """A record as a stream hands it out."""

    place: Place
    kind: str
    record: Record


def merged(files: Iterable[DataFile]) -> dict[tuple[str | None, int], Record]:
    """The newest record of each key, without those that are deleted."""
    newest: dict[tuple[str | None, int], Record] = {}
    for record in sorted((record for file in files for record in file.records), key=lambda each: each.sequence):
        newest[record.key] = record
    return {key: record for key, record in newest.items() if record.kind in ADDS}


def by_place(files: Iterable[DataFile]) -> dict[Place, list[DataFile]]:
    result: dict[Place, list[DataFile]] = {}
    for file in files:
        result.setdefault(file.place, []).append(file)
    return result


@dataclass(frozen=True)
class StreamModel:
    """Which records streams of a table hand out."""

    keyed: bool
    producer: str = "none"
    ordered: bool = True

    @property
    def retracts_overwrites(self) -> bool:
        """Whether an overwrite can be read with what it took away."""
        return self.keyed and self.producer in ("none", "input")

    def first_plan(self, commit: Commit) -> list[Handed]:
        """The state of the table, without what is still to come as changelog."""
        lowest = {"lookup": 1, "full-compaction": TOP_LEVEL}.get(self.producer, 0)
        return self._state(file for file in commit.live if file.level >= lowest)

    def is_read(self, commit: Commit, overwrites: bool) -> bool:
        """Whether a stream looks at a snapshot at all."""
        if commit.kind == "OVERWRITE" and overwrites:
            return True
        return commit.kind == "APPEND" if self.producer == "none" else bool(commit.changelog)

    def follow(self, commit: Commit, overwrites: bool) -> list[Handed]:
        if not self.is_read(commit, overwrites):
            return []
        if commit.kind == "OVERWRITE" and self.keyed:
            return self.replaced(commit)
        return _stored(commit.added if self.producer == "none" else commit.changelog)

    def replaced(self, commit: Commit) -> list[Handed]:
        """What an overwrite took away, then what it brought."""
        gone = self._state(commit.removed)
        taken = [Handed(each.place, "-D", each.record) for each in gone if each.kind in ADDS]
        return taken + self._state(commit.added)

    def _state(self, files: Iterable[DataFile]) -> list[Handed]:
        if not self.keyed:
            return [Handed(each.place, "+I", each.record) for each in _stored(files)]
        result = []
        for place, members in by_place(files).items():
            if place[1] != POSTPONED:
                result += [Handed(place, "+I", record) for record in merged(members).values()]
            elif self.producer == "none":
                result += _stored(members)
        return result


def _stored(files: Iterable[DataFile]) -> list[Handed]:
    return [Handed(file.place, record.kind, record) for file in files for record in file.records]


def java_hash(text: str) -> int:
    """Java's `String.hashCode`."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def in_shard(file: DataFile, index: int, count: int, by_file: bool) -> bool:
    """Whether a file belongs to a shard: by its bucket, or in tables without buckets by its name."""
    return (abs(java_hash(file.name)) if by_file else file.place[1]) % count == index


def restricted(commit: Commit, keep: Any) -> Commit:
    """A snapshot with some of its files only."""

    def kept(files: Sequence[DataFile]) -> tuple[DataFile, ...]:
        return tuple(file for file in files if keep(file))

    return Commit(
        commit.id,
        commit.kind,
        commit.schema,
        kept(commit.added),
        kept(commit.removed),
        kept(commit.changelog),
        kept(commit.live),
    )
