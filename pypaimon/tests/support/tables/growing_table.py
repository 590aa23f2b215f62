"""A table that grows by crafted commits, some thousands a second, and forgets what is old as expiry does."""

from __future__ import annotations

import io
import json
import uuid
from pathlib import Path
from typing import Any

import fastavro

from support.tables.streamed_table import Table


class GrowingTable(Table):
    """Each commit has a snapshot, a manifest list and a manifest of its own; all add the same file of one row.

    Args:
        warehouse: Where it is created.
        keep: Snapshots that expiry leaves.
        options: Of the table.
    """

    def __init__(self, warehouse: Path, keep: int, **options: str) -> None:
        super().__init__(warehouse, **options)
        self.commit([0])
        self._keep = keep
        self._latest = self._earliest = self.latest()
        self._snapshot = self.snapshot(self._latest)
        with (self._manifests / self._snapshot["deltaManifestList"]).open("rb") as file:
            reader = fastavro.reader(file)
            self._schema: Any = reader.writer_schema
            (self._listed,) = reader
        self._manifest = (self._manifests / self._listed["_FILE_NAME"]).read_bytes()
        self._files: dict[int, list[Path]] = {}

    @property
    def _manifests(self) -> Path:
        return self.path / "manifest"

    def grow(self, count: int) -> None:
        """Commit so many snapshots, then expire."""
        for _ in range(count):
            self._commit_next()
        (self.path / "snapshot" / "LATEST").write_text(str(self._latest))
        while self._latest - self._earliest >= self._keep:
            for path in (self.snapshot_path(self._earliest), *self._files.pop(self._earliest, ())):
                path.unlink()
            self._earliest += 1
        (self.path / "snapshot" / "EARLIEST").write_text(str(self._earliest))

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
        temporary = self.path / "snapshot" / ".next"
        temporary.write_text(json.dumps(self._snapshot | changes))
        temporary.rename(self.snapshot_path(self._latest))
