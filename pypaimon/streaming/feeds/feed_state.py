"""The share of one worker, and the state of a reader of it, as a small value for checkpoints."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Any

from pypaimon.streaming.errors import StreamConfigError, TableChangedError
from pypaimon.streaming.model.plan import Plan, SplitMode, StreamSplit
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.slot_rule import DividedBy, SlotRule, SlotSet
from pypaimon.streaming.options.table_traits import TableTraits
from pypaimon.streaming.paimon.internals import TableSchema


@dataclass(frozen=True, slots=True)
class Share:
    """One of several disjoint parts of a table, which together are the whole table.

    The files of a table without buckets are distributed plan by plan, each to the share with the fewest rows of that
    plan so far. Files of other tables are assigned by partition and bucket, so that all changes of a key are in one
    share.

    Attributes:
        index: The number of this share, from 0.
    """

    index: int = 0
    count: int = 1

    def slots(self, traits: TableTraits, schema: TableSchema) -> SlotSet | None:
        """The partitions and buckets of this share; None if the files of each plan are distributed."""
        if traits.unaware_bucket or self.count == 1:
            return None
        named = {field.name: field for field in schema.fields}
        fields = tuple(named[name] for name in schema.partition_keys)
        by = DividedBy.PARTITION_AND_BUCKET if fields else DividedBy.BUCKET
        return SlotSet(SlotRule(self.count, by, fields), frozenset({self.index}))

    def splits_of(self, plan: Plan) -> list[StreamSplit]:
        if self.count == 1:
            return plan.splits()
        units = [unit for split in plan.splits() for unit in _units(split)]
        owners = self._owners(plan.snapshot_id, [unit.rows for unit in units])
        mine: dict[int, tuple[StreamSplit, list[int]]] = {}
        for unit, owner in zip(units, owners, strict=True):
            if owner == self.index:
                mine.setdefault(id(unit.split), (unit.split, []))[1].extend(unit.files)
        return [_part(split, files) for split, files in mine.values()]

    def _owners(self, snapshot_id: int, rows: Sequence[int]) -> Iterator[int]:
        # Plans of few files would otherwise all begin with the same share. A text's own hash differs between processes.
        first = zlib.crc32(str(snapshot_id).encode())
        loads = [(0, turn, (first + turn) % self.count) for turn in range(self.count)]
        heapify(loads)
        for more in rows:
            load, turn, owner = loads[0]
            yield owner
            heapreplace(loads, (load + more, turn, owner))


def independent_parts(splits: Iterable[StreamSplit], traits: TableTraits) -> list[list[StreamSplit]]:
    """Groups of splits that may be read by different tasks, in any order."""
    if traits.unaware_bucket:
        return [[_part(unit.split, unit.files)] for split in splits for unit in _units(split)]
    parts: dict[tuple[object, ...], list[StreamSplit]] = {}
    for split in splits:
        place = (split.bucket, *(None if value is None else str(value) for value in split.partition.values))
        parts.setdefault(place, []).append(split)
    return list(parts.values())


@dataclass(frozen=True, slots=True)
class _Unit:
    split: StreamSplit
    files: tuple[int, ...]
    rows: int


def _units(split: StreamSplit) -> Iterator[_Unit]:
    if split.mode is SplitMode.ROWS:
        for index, file in enumerate(split.files):
            yield _Unit(split, (index,), file.row_count)
    elif split.mode is SplitMode.EVOLUTION and all(file.first_row_id is not None for file in split.files):
        yield from _row_id_ranges(split)
    else:
        yield _Unit(split, tuple(range(len(split.files))), split.row_count)


def _row_id_ranges(split: StreamSplit) -> Iterator[_Unit]:
    files, members = split.files, list[int]()
    start = end = -1
    for index in sorted(range(len(files)), key=lambda index: files[index].first_row_id):
        file = files[index]
        if members and file.first_row_id >= end:
            yield _Unit(split, tuple(sorted(members)), end - start)
            members = []
        if not members:
            start = file.first_row_id
        members.append(index)
        end = max(end, file.first_row_id + file.row_count)
    if members:
        yield _Unit(split, tuple(sorted(members)), end - start)


def _part(split: StreamSplit, files: Sequence[int]) -> StreamSplit:
    return split if len(files) == len(split.files) else split.of_files(files)


_VERSION = 1
_CHECKSUM = "checksum"


def with_checksum(state: dict[str, Any]) -> dict[str, Any]:
    """The state with a checksum, because one that was altered would repeat rows or leave some out."""
    return {**state, _CHECKSUM: _checksum(state)}


def check_unaltered(what: str, state: Mapping[str, Any]) -> None:
    """Check that a state is as `with_checksum` made it. States of earlier releases have no checksum.

    Raises:
        StreamConfigError: It was altered.
    """
    if _CHECKSUM in state and state[_CHECKSUM] != _checksum({key: state[key] for key in state if key != _CHECKSUM}):
        raise StreamConfigError(
            f"The state of the {what} was altered since state_dict() returned it, so that rows would be repeated or "
            "left out. Load it as it was saved, or start again without it."
        )


def _checksum(state: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(state, sort_keys=True, default=repr).encode())


@dataclass(frozen=True, slots=True)
class FeedState:
    """The progress of a reader.

    Attributes:
        after: The position after the current plan; None if nothing of it was handed out.
        rows: Rows of the current plan before this place.
        block: Rows of the shuffled block that begins here; 0 between blocks, and without shuffling.
        given: Rows of that block that were handed out.
    """

    position: Position
    after: Position | None = None
    rows: int = 0
    block: int = 0
    given: int = 0


@dataclass(frozen=True, slots=True)
class FeedIdentity:
    """What a saved state must have in common with the feed that continues from it."""

    table: str
    settings: Mapping[str, str]

    def state(self, share: Share, place: FeedState, **more: Any) -> dict[str, Any]:
        state = {
            "version": _VERSION,
            "table": self.table,
            "settings": dict(self.settings),
            "worker": share.index,
            "workers": share.count,
            "position": _saved(place.position),
            "behind": None if place.after is None else _saved(place.after),
            "rows": place.rows,
            **({"block": place.block, "given": place.given} if place.block else {}),
            **more,
        }
        return with_checksum(state)

    def place(self, share: Share, state: Mapping[str, Any]) -> FeedState:
        """Read what `state` made.

        Raises:
            StreamConfigError: The state is invalid, or belongs to a feed with other settings or another number of
                workers.
            TableChangedError: The state belongs to another table.
        """
        try:
            version, table, settings = state["version"], state["table"], dict(state["settings"])
            worker, workers, rows = state["worker"], state["workers"], int(state["rows"])
            position, after = state["position"], state["behind"]
            block, given = int(state.get("block", 0)), int(state.get("given", 0))
            if min(rows, block, given) < 0:
                raise ValueError("a number of rows is negative")
        except (KeyError, TypeError, ValueError) as error:
            raise StreamConfigError(
                f"Invalid state of a feed: {state!r}. Expected a result of state_dict()."
            ) from error
        if version != _VERSION:
            raise StreamConfigError(
                f"The state of the feed has version {version!r}, but this release reads version {_VERSION}. Use the "
                "release that wrote it, or a newer one."
            )
        if table != self.table:
            raise TableChangedError(
                f"The state belongs to another table (identity {table}; this one is {self.table}), or the table was "
                "re-created since.",
                advice="Start again without the state.",
            )
        self._check_settings(settings)
        if (worker, workers) != (share.index, share.count):
            raise StreamConfigError(
                f"The state belongs to worker {worker} of {workers}, but this is worker {share.index} of "
                f"{share.count}: use as many workers and ranks as before, each with its own state, as "
                "StatefulDataLoader does. To change the number, first read to an end and start a new feed there."
            )
        check_unaltered("feed", state)
        return FeedState(_read(position), None if after is None else _read(after), rows, block, given)

    def _check_settings(self, saved: Mapping[str, Any]) -> None:
        names = sorted({*saved, *self.settings})
        other = [name for name in names if saved.get(name) != self.settings.get(name)]
        if other:
            changes = "; ".join(f"{name} was {saved.get(name)}, now {self.settings.get(name)}" for name in other)
            raise StreamConfigError(
                f"The state belongs to a feed with other settings: {changes}. Use the settings of the state, or start "
                "again without it."
            )


def _saved(position: Position) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(position.to_json())
    return value


def _read(value: Any) -> Position:
    return Position.from_json(json.dumps(value))
