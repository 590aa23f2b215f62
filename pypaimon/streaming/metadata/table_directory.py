"""`TableDirectory`: the files of a table for one branch: snapshots, manifests, schemas, tags."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from pypaimon.streaming.concurrency.forking import ForkSafeLock
from pypaimon.streaming.concurrency.lazy import Lazy
from pypaimon.streaming.errors import CorruptTableError, PaimonStreamError, TableChangedError, UnsupportedTableError
from pypaimon.streaming.io.retried_requests import asked_ahead
from pypaimon.streaming.io.store import CONCURRENCY, Store
from pypaimon.streaming.metadata.manifest_cache import ManifestCache
from pypaimon.streaming.metadata.snapshots import Snapshot, SnapshotManager, branch_directory, catalog_error, inside
from pypaimon.streaming.model.time_zone import TimeZone, zone_of_table
from pypaimon.streaming.paimon.handles import ReadableTable, dynamic_options, on_branch
from pypaimon.streaming.paimon.internals import TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.manifests import ManifestReader

_MAIN = "main"
_TAG_PREFIX, _SCHEMA_PREFIX, _BRANCH_PREFIX = "tag-", "schema-", "branch-"
SUCCESS_FILES = "tag-success-file"
"""The directory next to the tags where Java writes a file for each (`tag.create-success-file`)."""
_SHARED = "_pypaimon_streaming_directories"
_shared_lock = ForkSafeLock()


class TableDirectory:
    """The files of a table, for one branch, as one scan or read has read them. Thread-safe.

    A new directory knows nothing, so that it sees the table as it is now and not as it was when its handle was loaded.
    `forget` restores that. The directories of a handle share the count of requests, and manifests, which never change.
    """

    def __init__(
        self, table: ReadableTable, store: Store, manifests: ManifestReader | None = None, identity: str | None = None
    ) -> None:
        self.table = table
        self.store = store
        self.branch: str = table.current_branch() or _MAIN
        self._home = branch_directory(table.table_path, self.branch)
        loader = table.catalog_environment.snapshot_loader()
        self._snapshots = Lazy(partial(SnapshotManager, store, table.table_path, self.branch, loader))
        self._manifests = Lazy(partial(_manifest_reader, store, table.table_path))
        if manifests is not None:
            self.manifests = manifests
        self._schemas: dict[int, TableSchema] = {}
        self._branches: dict[str, TableDirectory] = {}
        self._identity = identity

    @staticmethod
    def of(table: ReadableTable, io_timeout: float = 60.0, identity: str | None = None) -> TableDirectory:
        """A new directory of a table handle."""
        with _shared_lock.held:
            shared: _Shared = vars(table).setdefault(_SHARED, _Shared())
            if io_timeout not in shared:
                store = Store(table.file_io, io_timeout, shared.most)
                shared[io_timeout] = store, Lazy(partial(_manifest_reader, store, table.table_path, shared.cache))
        store, manifests = shared[io_timeout]
        directory = TableDirectory(table, store.for_reader(), identity=identity)
        directory._manifests = manifests
        return directory

    @staticmethod
    def share(table: ReadableTable, most_requests: int, cache: ManifestCache) -> None:
        """Have later directories of a handle share limits with other tables."""
        with _shared_lock.held:
            shared = vars(table).setdefault(_SHARED, _Shared())
            shared.most, shared.cache = most_requests, cache

    @staticmethod
    def pass_on(table: ReadableTable, other: ReadableTable) -> None:
        """Have later directories of another handle of the same table share the stores and limits of this handle's."""
        vars(other)[_SHARED] = vars(table)[_SHARED]

    @property
    def snapshots(self) -> SnapshotManager:
        """The snapshots and long-lived changelogs of the branch."""
        return self._snapshots.get()

    @cached_property
    def manifests(self) -> ManifestReader:
        """The table's manifests. Their decoder is imported at the first use."""
        return self._manifests.get().through(self.store)

    def of_branch(self, branch: str) -> TableDirectory:
        """Another branch of the table, for the same reader."""
        known = self._branches.get(branch)
        if known is None:
            made = TableDirectory(on_branch(self.table, branch), self.store, self.manifests)
            known = self._branches.setdefault(branch, made)
        return known

    def forget(self) -> None:
        """Drop snapshots and schemas, because after a rollback others may have their ids."""
        if (snapshots := self._snapshots.known) is not None:
            snapshots.forget()
        self._schemas.clear()
        for directory in self._branches.values():
            directory.forget()

    def know(self, schema: TableSchema) -> None:
        """Add a schema that was read before, so that it is not requested again."""
        self._schemas[schema.id] = schema

    def schema(self, schema_id: int) -> TableSchema:
        """A schema by id, as it is in the store. One request unless it is known. Raises FileNotFoundError if there is
        no such schema, CorruptTableError if it cannot be decoded, UnsupportedTableError if it has a column of a type
        that pypaimon does not know.
        """
        known = self._schemas.get(schema_id)
        if known is None:
            known = self._schemas[schema_id] = self.store.parse(
                self._schema_path(schema_id), partial(_parse_schema, schema_id)
            )
        return known

    def known_schema(self, schema_id: int) -> TableSchema:
        """A schema that was read before. Sends no request; raises KeyError if the schema is not known."""
        return self._schemas[schema_id]

    def reading_schema(self, schema_id: int) -> TableSchema:
        """As `schema`, with the options that the handle adds to those of the table: `table.copy({...})`."""
        schema = self.schema(schema_id)
        options = dict(schema.options)
        for key, value in dynamic_options(self.table).items():
            if value is None:
                options.pop(key, None)
            else:
                options[key] = value
        return schema.copy(new_options=options)

    @cached_property
    def zone(self) -> TimeZone:
        """The time zone of readers and writers; raises StreamConfigError if its name is unknown."""
        return zone_of_table(self.table)

    @property
    def identity(self) -> str:
        """Identifies this table among later ones in its place, and its branches. Kept from the first access.

        The catalog's uuid, or the creation time of the table; then the branch, unless it is main.
        """
        if self._identity is None:
            first = None if self.table.catalog_environment.uuid else self._schemas.get(0)
            self._identity = self.current_identity() if first is None else self._on_branch(str(first.time_millis))
        return self._identity

    def current_identity(self) -> str:
        """The identity as it is now. One request, to the catalog if it gives its tables a uuid. Raises
        FileNotFoundError if the table is gone, TableChangedError if the table is no longer in the catalog, or has
        another path there.
        """
        return self.asked_identity()()

    def asked_identity(self) -> Callable[[], str]:
        """As `current_identity`, but the request is sent at once, and the returned function waits for the answer."""
        environment = self.table.catalog_environment
        if not environment.uuid:
            answer = self._asked_creation_time()
        elif environment.catalog_loader is None:
            # Without a catalog a re-created table cannot be found out.
            return lambda: self._on_branch(environment.uuid)
        else:
            answer = self.store.begin_call("catalog", self.table.table_path, self._load_uuid)
        return lambda: self._on_branch(answer())

    def _on_branch(self, table: str) -> str:
        return table if self.branch == _MAIN else f"{table}/{self.branch}"

    def _load_uuid(self, table_path: str) -> str:
        environment = self.table.catalog_environment
        try:
            found = environment.catalog_loader.load().get_table(environment.identifier)
        except Exception as error:
            raise catalog_error(error) from error
        if found.table_path != table_path:
            raise TableChangedError(
                f"The table was re-created, and is in {found.table_path} now.",
                advice="Load the table again and build a new stream with a start of its own.",
            )
        return str(found.catalog_environment.uuid)

    def _asked_creation_time(self) -> Callable[[], str]:
        path = self._schema_path(0)
        first = self.store.begin_read(path)

        def answer() -> str:
            try:
                return self.store.parse_data(path, first(), _creation_time)
            except FileNotFoundError:
                # A branch that was created from a tag may have no schema 0. Without any it was deleted.
                if not self.exists():
                    raise
                root = f"{branch_directory(self.table.table_path, None)}/schema/{_SCHEMA_PREFIX}0"
                return self.store.parse(root, _creation_time)

        return answer

    def tag(self, name: str) -> Snapshot | None:
        """The snapshot that a tag keeps, or None if there is no such tag. One request."""
        try:
            return self.store.parse(self.tag_path(name), Snapshot.from_json)
        except FileNotFoundError:
            return None

    def tag_path(self, name: str) -> str:
        """Path of a tag's file.

        Raises:
            StreamConfigError: It would be outside of the table's directory.
        """
        return f"{self._home}/tag/{_TAG_PREFIX}{inside('tag', name)}"

    def tagged(self, snapshot_id: int) -> Snapshot | None:
        """A snapshot that a tag keeps, or None. One listing, and one request per tag, at the same time."""
        paths = [self.tag_path(name) for name in self.tag_names()]
        for path, data in zip(paths, self.store.read_many(paths), strict=True):
            if data is None:
                continue
            # Another tag may keep the snapshot, so skip a damaged one.
            with suppress(CorruptTableError):
                found = self.store.parse_data(path, data, Snapshot.from_json)
                if found.id == snapshot_id:
                    return found
        return None

    def tag_names(self) -> list[str]:
        """Names of all tags. One listing."""
        return sorted(_tags_among(self.store.list_names(f"{self._home}/tag")))

    def tag_statuses(self) -> dict[str, Any]:
        """Statuses (`path`, `size`, `mtime`) of all tags by name, ascending. One listing."""
        listed = self.store.list_statuses(f"{self._home}/tag")
        found = {str(each.path).rstrip("/").rpartition("/")[2]: each for each in listed}
        return {name: found[file] for name, file in sorted(_tags_among(found).items())}

    def branch_names(self) -> list[str]:
        """Names of the table's branches, without main. One listing."""
        names = self.store.list_names(f"{branch_directory(self.table.table_path, None)}/branch")
        return sorted(name[len(_BRANCH_PREFIX) :] for name in names if name.startswith(_BRANCH_PREFIX))

    def exists(self) -> bool:
        """Whether the table exists, because it has a schema. One listing."""
        return any(name.startswith(_SCHEMA_PREFIX) for name in self.store.list_names(f"{self._home}/schema"))

    def latest_schema(self) -> TableSchema:
        """The newest schema, as it is in the store now. One listing, and one request if it is new. Raises
        FileNotFoundError if the table is gone.
        """
        return self.schema(self._latest_schema_id())

    def latest_schema_and_snapshot(self) -> tuple[TableSchema, Snapshot | None]:
        """As `latest_schema`, with the latest snapshot, which is read after the listing and before the schema file.

        The snapshot is therefore not later than the table of the schema: nothing has to check that the table is still
        the same one. None: there is no snapshot, or the hint does not lead to it, so that only a listing would find it.
        """
        with asked_ahead():
            hinted = self.snapshots.begin_hinted_latest()
        newest = self._latest_schema_id()
        latest = None
        # A damaged snapshot is an error of the stream that reads it.
        with suppress(PaimonStreamError), asked_ahead():
            latest = hinted()
        return self.schema(newest), latest

    def _latest_schema_id(self) -> int:
        names = self.store.list_names(f"{self._home}/schema")
        numbers = [name[len(_SCHEMA_PREFIX) :] for name in names if name.startswith(_SCHEMA_PREFIX)]
        ids = [int(number) for number in numbers if number.isdecimal()]
        if not ids:
            raise FileNotFoundError(f"{self._home}/schema")
        return max(ids)

    def is_schema(self, path: str) -> bool:
        """Whether a path, or a message with a path, names a schema file."""
        return f"{self._home}/schema/{_SCHEMA_PREFIX}" in path

    def _schema_path(self, schema_id: int) -> str:
        return f"{self._home}/schema/{_SCHEMA_PREFIX}{schema_id}"


def _manifest_reader(store: Store, table_path: str, cache: ManifestCache | None = None) -> ManifestReader:
    from pypaimon.streaming.metadata.manifests import ManifestReader

    return ManifestReader(store, table_path, cache)


class _Shared(dict[float, tuple[Store, Lazy["ManifestReader"]]]):
    """Stores and manifests that the directories of a table handle share. Copies of the handle have others."""

    most: int = CONCURRENCY
    cache: ManifestCache | None = None  # The manifest cache; None: one per IO timeout

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def _parse_schema(schema_id: int, data: bytes) -> TableSchema:
    try:
        with naming_unreadable_types(f"schema {schema_id}"):
            schema: TableSchema = TableSchema.from_json(data.decode())
    except (LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise ValueError(f"not a schema: {error}") from error
    # Its creation time is the identity of the table, unless a catalog gives it a uuid.
    if not schema_id:
        _creation_time(data)
    if schema.id != schema_id:
        raise ValueError(f"it is the file of schema {schema_id}, but says that it is schema {schema.id}")
    return schema


def _creation_time(data: bytes) -> str:
    value = json.loads(data)
    if not isinstance(value, dict) or not isinstance(value.get("timeMillis"), int):
        raise ValueError("field 'timeMillis' is missing")
    return str(value["timeMillis"])


_UNKNOWN = re.compile(r"Unknown type: (GEOMETRY|GEOGRAPHY)\b")


@contextmanager
def naming_unreadable_types(where: str) -> Iterator[None]:
    """A context that reports a schema which pypaimon cannot parse because of a type that Java has. Raises
    UnsupportedTableError if pypaimon failed to parse such a type.
    """
    try:
        yield
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None:
            if named := _UNKNOWN.search(str(cause)):
                raise UnsupportedTableError(
                    f"Columns of type {named[1]} cannot be streamed, and {where} has one: pypaimon does not know it."
                ) from error
            cause = cause.__cause__
        raise


def _tags_among(names: Iterable[str]) -> dict[str, str]:
    """The names of files of tags, by the names of the tags."""
    files = (name for name in names if name.startswith(_TAG_PREFIX) and name != SUCCESS_FILES)
    return {name[len(_TAG_PREFIX) :]: name for name in files}
