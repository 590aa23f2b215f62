"""Commits that are crafted file by file, some thousands a second, and expire as fast."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any

import fastavro

from support.tables.streamed_table import Table


class RepeatedCommits:
    """Commits the latest snapshot of a table again and again, with a new manifest list and manifest each time.

    All commits add the same file.

    Args:
        table: A table with one snapshot.
        keep: The number of snapshots that expiry leaves.
    """

    def __init__(self, table: Table, keep: int) -> None:
        self._table = table
        self._keep = keep
        self._latest = self._earliest = table.latest()
        self._snapshot = table.snapshot(self._latest)
        self._manifests = table.path / "manifest"
        with (self._manifests / self._snapshot["deltaManifestList"]).open("rb") as file:
            reader = fastavro.reader(file)
            self._schema: Any = reader.writer_schema
            (self._listed,) = reader
        self._manifest = (self._manifests / self._listed["_FILE_NAME"]).read_bytes()
        self._files: dict[int, list[Path]] = {}

    def add(self, count: int) -> None:
        """Make `count` commits, then expire old ones."""
        for _ in range(count):
            self._commit_next()
        snapshots = self._table.path / "snapshot"
        (snapshots / "LATEST").write_text(str(self._latest))
        while self._latest - self._earliest >= self._keep:
            for path in (self._table.snapshot_path(self._earliest), *self._files.pop(self._earliest, ())):
                path.unlink()
            self._earliest += 1
        (snapshots / "EARLIEST").write_text(str(self._earliest))

    def _commit_next(self) -> None:
        self._latest += 1
        listing = self._manifests / f"manifest-list-{uuid.uuid4()}-1"
        manifest = self._manifests / f"manifest-{uuid.uuid4()}-0"
        self._files[self._latest] = [manifest, listing]
        manifest.write_bytes(self._manifest)
        out = io.BytesIO()
        fastavro.writer(out, self._schema, [{**self._listed, "_FILE_NAME": manifest.name}])
        listing.write_bytes(out.getvalue())
        self._snapshot["totalRecordCount"] += 1
        self._snapshot["timeMillis"] += 1
        self._snapshot.pop("uuid", None)
        changes = {
            "id": self._latest,
            "commitIdentifier": self._latest,
            "deltaManifestList": listing.name,
            "deltaManifestListSize": len(out.getvalue()),
        }
        temporary = self._table.path / "snapshot" / ".next"
        temporary.write_text(json.dumps(self._snapshot | changes))
        temporary.rename(self._table.snapshot_path(self._latest))
