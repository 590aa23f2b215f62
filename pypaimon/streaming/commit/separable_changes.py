"""`SeparableChanges`: changes of a compaction of which some may be left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pypaimon.streaming.commit.changes import COMPACT, AvroRecord, Changes, FileChange
from pypaimon.streaming.commit.conflicts import ConflictRules, TableState, check_changes
from pypaimon.streaming.errors import CommitConflictError


@dataclass(slots=True)
class SeparableChanges:
    """A `CommitPlan`: changes of which some may be left out."""

    parts: Sequence[Changes]
    has_left_out: bool = False  # Whether some attempt has left out a part

    @property
    def kind(self) -> str:
        return COMPACT

    @property
    def may_conflict(self) -> bool:
        return True

    @property
    def keep_empty(self) -> bool:
        return False

    def changes(self, state: TableState) -> Changes:
        return _joined(self.parts)

    def without_conflicts(
        self, base: Iterable[FileChange], index: Iterable[AvroRecord], rules: ConflictRules
    ) -> Changes | None:
        """The changes of the parts that may follow a state; None: no part may."""
        files, vectors = dict[tuple[bytes, int], list[FileChange]](), dict[tuple[bytes, int], list[AvroRecord]]()
        for each in base:
            files.setdefault((each.partition, each.bucket), []).append(each)
        for record in index:
            vectors.setdefault((record["_PARTITION"], record["_BUCKET"]), []).append(record)
        kept: list[Changes] = []
        for part in self.parts:
            places = _places(part)
            there = [each for place in places for each in files.get(place, ())]
            if rules.key_order is None:
                # Only the files that the part names matter, and a bucket may have any number.
                names = {each.name for each in part.files}
                there = [each for each in there if each.name in names]
            try:
                check_changes(COMPACT, there, [each for at in places for each in vectors.get(at, ())], part, rules)
            except CommitConflictError:
                continue
            kept.append(part)
        self.has_left_out = True
        return _joined(kept) if kept else None


def _places(changes: Changes) -> set[tuple[bytes, int]]:
    index = (*changes.index_added, *changes.index_deleted)
    return {
        *((each.partition, each.bucket) for each in changes.files),
        *((each["_PARTITION"], each["_BUCKET"]) for each in index),
    }


def _joined(parts: Sequence[Changes]) -> Changes:
    return Changes.of(
        [each for part in parts for each in part.files],
        [each for part in parts for each in part.changelog],
        [each for part in parts for each in part.index_added],
        [each for part in parts for each in part.index_deleted],
    )
