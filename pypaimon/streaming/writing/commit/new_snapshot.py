"""`new_snapshot`: the JSON of a snapshot as current Java writes it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pypaimon.streaming.metadata.snapshots import Snapshot
from pypaimon.streaming.writing.commit.file_changes import Changes


@dataclass(frozen=True, slots=True)
class CommitFacts:
    """What a commit says of itself.

    Attributes:
        user: Commit user.
        identifier: Commit identifier.
        schema_id: The table's latest schema.
        watermark: Event time up to which rows are complete, epoch milliseconds; None: nothing is said.
        properties: What is noted beside.
    """

    user: str
    identifier: int
    schema_id: int
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ManifestNames:
    """The files that a snapshot names; lists with their sizes.

    Attributes:
        base: Everything before the commit.
        delta: What it changes.
        changelog: Its changelog files, if it has some.
        index: All index files, if there are some.
    """

    base: tuple[str, int]
    delta: tuple[str, int]
    changelog: tuple[str, int] | None
    index: str | None


def new_snapshot(
    latest: Snapshot | None, kind: str, facts: CommitFacts, changes: Changes, names: ManifestNames, next_row_id: int
) -> dict[str, Any]:
    """The snapshot that follows another one; None: the first one.

    The watermark never falls; statistics of the table are carried over while its schema is the same; properties are
    those of this commit alone.
    """
    watermarks = [facts.watermark, None if latest is None else latest.watermark]
    carried = latest.statistics if latest is not None and latest.schema_id == facts.schema_id else None
    before = 0 if latest is None else latest.total_record_count or 0
    changelog_rows = sum(each.rows for each in changes.changelog)
    found: dict[str, Any] = {
        "version": 3,
        "id": 1 if latest is None else latest.id + 1,
        "schemaId": facts.schema_id,
        "baseManifestList": names.base[0],
        "baseManifestListSize": names.base[1],
        "deltaManifestList": names.delta[0],
        "deltaManifestListSize": names.delta[1],
        "changelogManifestList": names.changelog and names.changelog[0],
        "changelogManifestListSize": names.changelog and names.changelog[1],
        "indexManifest": names.index,
        "commitUser": facts.user,
        "commitIdentifier": facts.identifier,
        "commitKind": kind,
        "timeMillis": time.time_ns() // 1_000_000,
        "totalRecordCount": before + changes.rows,
        "deltaRecordCount": changes.rows,
        "changelogRecordCount": changelog_rows if names.changelog else None,
        "watermark": max((each for each in watermarks if each is not None), default=None),
        "statistics": carried,
        "properties": dict(facts.properties) or None,
        "nextRowId": next_row_id,
        "uuid": str(uuid4()),
    }
    return {name: value for name, value in found.items() if value is not None}
