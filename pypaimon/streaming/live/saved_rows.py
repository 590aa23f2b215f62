"""`SavedRows`: the rows of a live table in a file, with which the next start continues."""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from glob import escape
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, TargetError
from pypaimon.streaming.live.row_store import RowStore, TableVersion
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.arguments import a_path, finite_seconds
from pypaimon.streaming.paimon.internals import DataField
from pypaimon.streaming.spec.resolve import ResolvedStream

_LOG = StreamLog(__name__)
_KEY = b"paimon.live"
_VERSION = 1
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_LEFT_SECONDS = 3600
"""Age of an unfinished file from which on its writer is taken for dead."""


@dataclass(frozen=True, slots=True)
class SavedState:
    """What a file holds.

    Attributes:
        position: A position that the rows have reached, and may be past: applying its changes again changes nothing.
        schema_id: The schema of the rows.
        fields: The fields of the table that the columns of the rows are, by the names of the columns.
    """

    rows: pa.Table
    position: Position
    table_version: TableVersion
    schema_id: int
    fields: Mapping[str, DataField]


class SavedRows:
    """An Arrow IPC file, replaced as a whole, whose metadata hold the position as JSON.

    Args:
        path: The file.
        interval: Seconds between two saves.

    Attributes:
        position: Where the next start continues; None: nothing was saved or loaded yet.
    """

    def __init__(self, path: Path, interval: float) -> None:
        self.position: Position | None = None
        self._path = path
        self._interval = interval
        self._due = -math.inf
        self._lock = threading.Lock()

    def is_due(self, now: float) -> bool:
        """Whether the interval is over (a monotonic clock). If it is, another one begins."""
        if now < self._due:
            return False
        self._due = now + self._interval
        return True

    def load(self, stream: ResolvedStream) -> SavedState | None:
        """Read the file; None, with a log line that says why, if it does not hold rows of this stream."""
        expected = _settings_of(stream)
        if not self._path.exists():
            return None
        try:
            with pa.OSFile(str(self._path)) as file:
                rows = pa.ipc.open_file(file).read_all()
            metadata = dict(rows.schema.metadata or {})
            saved = json.loads(metadata.pop(_KEY))
            if saved["version"] != _VERSION:
                raise ValueError(f"version {saved['version']} of the format, this release reads {_VERSION}")
            position = Position.from_json(json.dumps(saved["position"]))
            version = TableVersion(saved["snapshot"], _time(saved["commit_millis"]))
            schema_id, settings = int(saved["schema"]), saved["settings"]
            fields = {name: DataField.from_dict(value) for name, value in saved["fields"].items()}
        except (OSError, pa.ArrowException, LookupError, TypeError, ValueError, AttributeError) as error:
            self.note_unused(f"it cannot be read ({error!r})")
            return None
        if other := [name for name, value in expected.items() if settings.get(name) != value]:
            self.note_unused(f"its settings are others: {', '.join(other)}")
            return None
        return SavedState(rows.replace_schema_metadata(metadata or None), position, version, schema_id, fields)

    def note_unused(self, reason: str) -> None:
        _LOG.warning(
            "saved_rows_unused",
            "the saved rows in %(file)s are not used, the live table begins with the state of the table: %(reason)s",
            file=str(self._path),
            reason=reason,
        )

    def save(self, stream: ResolvedStream, rows: RowStore, position: Position) -> None:
        """Replace the file; a crash leaves the old one.

        Args:
            position: A position that the rows have reached.

        Raises:
            TargetError: It cannot be written.
        """
        version, columns = rows.table_version, rows.columns
        saved = {
            "version": _VERSION,
            "settings": _settings_of(stream),
            "schema": rows.held.schema.id,
            "fields": {name: field.to_dict() for name, field in rows.held.fields.items()},
            "position": json.loads(position.to_json()),
            "snapshot": version.snapshot_id,
            "commit_millis": _millis(version.commit_time),
        }
        schema = columns.with_metadata({**(columns.metadata or {}), _KEY: json.dumps(saved).encode()})
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}-{threading.get_ident()}.tmp")
        with self._lock:
            try:
                with open(temporary, "wb") as file:
                    with pa.ipc.new_file(file, schema) as writer:
                        for batch in rows.batches():
                            writer.write_batch(batch)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, self._path)
                self._clean()
                self.position = position
            except (OSError, pa.ArrowException) as error:
                raise TargetError(f"cannot save the rows of a live table in {self._path}: {error}") from error
            finally:
                temporary.unlink(missing_ok=True)

    def _clean(self) -> None:
        """Make the new name last, and remove what killed processes have left."""
        if os.name == "posix":
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        for left in self._path.parent.glob(f"{escape(self._path.name)}.*.tmp"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _LEFT_SECONDS:
                    left.unlink()


def saved_rows(path: str | PathLike[str] | None, interval: float | timedelta) -> SavedRows | None:
    """Check the arguments of `open_live`."""
    seconds = finite_seconds("open_live: save_interval", interval)
    if path is None:
        return None
    place = Path(a_path("open_live: save_to", path)).absolute()
    if place.is_dir() or not os.access(place.parent, os.W_OK | os.X_OK):
        raise StreamConfigError(f"open_live: save_to={str(path)!r}: give a file in a directory that can be written")
    return SavedRows(place, seconds)


def _settings_of(stream: ResolvedStream) -> Mapping[str, Any]:
    """What decides which rows a live table has. A file with other settings is not used."""
    options = stream.options
    if options.bucket_filter is not None:
        raise StreamConfigError(
            "open_live: save_to: with_buckets(...) cannot be compared with that of a saved file; leave one of them out"
        )
    return {
        "table": stream.identity,
        # By the ids of fields, because columns may exchange their names.
        "filter": stream.scope.filter,
        "columns": None if stream.spec.projection is None else list(stream.spec.projection),
        "names": None if stream.spec.output_names is None else list(stream.spec.output_names),
        "nested": stream.spec.read_type is not None,
        "shard": None if options.shard is None else list(options.shard),
        "time zone": option_keys.TIME_ZONE.of(stream.schema.options),
    }


def _millis(time_: datetime | None) -> int | None:
    return None if time_ is None else round((time_ - _EPOCH) / timedelta(milliseconds=1))


def _time(millis: int | None) -> datetime | None:
    return None if millis is None else _EPOCH + timedelta(milliseconds=millis)
