"""`TableDirectory`: what lies in the directory of a table, for one branch: snapshots, manifests, schemas, tags."""

from __future__ import annotations

import json
import threading
from functools import partial
from typing import Any

from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.metadata.manifests import ManifestReader
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager, branch_directory, inside
from pypaimon.streaming.store import Store

_MAIN = "main"
_TAG_PREFIX, _SCHEMA_PREFIX = "tag-", "schema-"
_SHARED = "_pypaimon_streaming_directories"
_shared_lock = threading.Lock()


class TableDirectory:
    """The files of a table, for one branch. Shared by all scans and reads of a table handle. Thread-safe.

    Args:
        table: pypaimon's table.
        store: Requests to where it lies.

    Attributes:
        table: pypaimon's table.
        store: Every request goes through it.
        branch: Name of the branch.
        snapshots: Its snapshots and long-lived changelogs.
        manifests: The table's manifests.
    """

    def __init__(self, table: Any, store: Store) -> None:
        self.table = table
        self.store = store
        self.branch: str = table.current_branch() or _MAIN
        self._home = branch_directory(table.table_path, self.branch)
        loader = table.catalog_environment.snapshot_loader()
        self.snapshots = SnapshotManager(store, table.table_path, self.branch, loader)
        self.manifests = ManifestReader(store, table.table_path)
        self._schemas: dict[int, TableSchema] = {table.table_schema.id: table.table_schema}
        self._identity: str | None = None

    @staticmethod
    def of(table: Any, io_timeout: float = 60.0) -> TableDirectory:
        """The directory of a table handle; the same object for the same handle and time limit."""
        with _shared_lock:
            shared: _Shared = vars(table).setdefault(_SHARED, _Shared())
            if io_timeout not in shared:
                shared[io_timeout] = TableDirectory(table, Store(table.file_io, io_timeout))
            return shared[io_timeout]

    def schema(self, schema_id: int) -> TableSchema:
        """A schema by id. One request unless it is known.

        Raises:
            FileNotFoundError: There is no such schema.
            CorruptTableError: It cannot be decoded.
        """
        known = self._schemas.get(schema_id)
        if known is None:
            known = self._schemas[schema_id] = self.store.parse(
                self._schema_path(schema_id), partial(_parse_schema, schema_id)
            )
        return known

    @property
    def identity(self) -> str:
        """Tells this table from a later one in its place, and its branches apart.

        The catalog's uuid, else when it was created; then the branch, unless that is main.
        """
        if self._identity is None:
            self._identity = self.current_identity()
        return self._identity

    def current_identity(self) -> str:
        """The identity as it is in the store now.

        Raises:
            FileNotFoundError: The table is gone.
        """
        uuid = self.table.catalog_environment.uuid
        table = str(uuid) if uuid else self._created()
        return table if self.branch == _MAIN else f"{table}/{self.branch}"

    def _created(self) -> str:
        try:
            return self.store.parse(self._schema_path(0), _creation_time)
        except FileNotFoundError:
            # A branch made from a tag may begin with a later schema than 0.
            return self.store.parse(f"{branch_directory(self.table.table_path, None)}/schema/schema-0", _creation_time)

    def tag(self, name: str) -> Snapshot | None:
        """The snapshot that a tag keeps, or None if there is no such tag. One request."""
        path = f"{self._home}/tag/{_TAG_PREFIX}{inside('tag', name)}"
        try:
            return self.store.parse(path, Snapshot.from_json)
        except FileNotFoundError:
            return None

    def tag_names(self) -> list[str]:
        """Names of all tags. One listing."""
        names = self.store.list_names(f"{self._home}/tag")
        return sorted(name[len(_TAG_PREFIX) :] for name in names if name.startswith(_TAG_PREFIX))

    def exists(self) -> bool:
        """Whether the table is still there: it has a schema. One listing."""
        return any(name.startswith(_SCHEMA_PREFIX) for name in self.store.list_names(f"{self._home}/schema"))

    def latest_schema(self) -> TableSchema:
        """The newest schema, as it is in the store now. One listing, and one request if it is new.

        Raises:
            FileNotFoundError: The table is gone.
        """
        names = self.store.list_names(f"{self._home}/schema")
        numbers = [name[len(_SCHEMA_PREFIX) :] for name in names if name.startswith(_SCHEMA_PREFIX)]
        ids = [int(number) for number in numbers if number.isdecimal()]
        if not ids:
            raise FileNotFoundError(f"{self._home}/schema")
        return self.schema(max(ids))

    def _schema_path(self, schema_id: int) -> str:
        return f"{self._home}/schema/{_SCHEMA_PREFIX}{schema_id}"


class _Shared(dict[float, TableDirectory]):
    """The directories of a table handle. They lie on the handle, so that they go with it; its copies get none."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def _parse_schema(schema_id: int, data: bytes) -> TableSchema:
    try:
        schema = TableSchema.from_json(data.decode())
    except (LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"no schema: {error}") from error
    if schema.id != schema_id:
        raise ValueError(f"it is the file of schema {schema_id}, but says that it is schema {schema.id}")
    return schema


def _creation_time(data: bytes) -> str:
    value = json.loads(data)
    if not isinstance(value, dict) or not isinstance(value.get("timeMillis"), int):
        raise ValueError("field 'timeMillis' is missing")
    return str(value["timeMillis"])
