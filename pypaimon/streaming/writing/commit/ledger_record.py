"""`Record`: what the ledger remembers of a commit user in one table, as a small JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pypaimon.streaming.writing.commit.commit_ids import BatchIds

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Record:
    """What the ledger remembers. True for ever of the history that has its mark, so an older one is no danger.

    Attributes:
        first: Snapshots before it hold no commit of the user that is not in `batches`, or at most `unknown`.
        batches: The identifiers that were found in snapshots.
        unknown: Identifiers up to this one that are not in `batches` may have been committed; None: none of them was.
        attempt: The greatest identifier whose commit was begun, or reserved for one that is to come.
        origin: What counted the commits, if known.
        mark: Fingerprint of the snapshot before `first`; None if there was none, or an older release wrote the file.
    """

    first: int
    batches: BatchIds
    unknown: int | None
    attempt: int
    origin: str | None = None
    mark: str | None = None

    def to_json(self) -> bytes:
        """The file's text."""
        value = {
            "version": _VERSION,
            "first": self.first,
            "batches": self.batches.pairs(),
            "unknown": self.unknown,
            "attempt": self.attempt,
            "origin": self.origin,
            "mark": self.mark,
        }
        return json.dumps(value).encode()

    @staticmethod
    def from_json(data: bytes) -> Record:
        """Read what `to_json` wrote, or wrote before it knew more than the last one.

        Raises:
            ValueError: It is no record.
        """
        value = json.loads(data)
        if not isinstance(value, dict) or value.get("version") not in (1, _VERSION):
            raise ValueError(f"no record of version {_VERSION}")
        first, attempt = _number(value, "first"), _number(value, "attempt")
        if first is None or attempt is None:
            raise ValueError(f"no numbers in {value!r}")
        if value["version"] == 1:
            committed = _number(value, "committed")
            known = BatchIds() if committed is None else BatchIds.of([committed])
            return Record(first, known, committed, attempt)
        batches = BatchIds.from_pairs(value.get("batches"))
        return Record(first, batches, _number(value, "unknown"), attempt, _text(value, "origin"), _text(value, "mark"))


def _number(value: dict[str, Any], name: str) -> int | None:
    found = value.get(name)
    if found is not None and type(found) is not int:
        raise ValueError(f"field {name!r} is {found!r}")
    return found


def _text(value: dict[str, Any], name: str) -> str | None:
    found = value.get(name)
    if found is not None and not isinstance(found, str):
        raise ValueError(f"field {name!r} is {found!r}")
    return found
