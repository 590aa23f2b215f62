"""Internals of pypaimon that this package uses: types, schemas, rows, files.

Those for filters are in `filter_internals`, those for reading tables in `read_internals`, those for writing them in
`write_internals`, and catalogs in `catalogs`: these take much longer to import.
"""

import errno
import os
from collections.abc import Mapping
from copy import copy
from functools import cached_property
from typing import Any

from pyarrow.fs import FileType, S3FileSystem
from pypaimon.catalog.catalog_exception import (
    DatabaseNotExistException,
    TableNoPermissionException,
    TableNotExistException,
)
from pypaimon.common.identifier import Identifier
from pypaimon.common.json_util import JSON
from pypaimon.common.map_blob_key_serializer import create_map_blob_key_serializer as map_key_serializer
from pypaimon.common.options import Options
from pypaimon.common.options import config as catalog_options
from pypaimon.common.options.config_option import ConfigOption
from pypaimon.common.options.core_options import CoreOptions
from pypaimon.data.timestamp import Timestamp
from pypaimon.data.variant_shredding import assemble_shredded_column, build_variant_schema, is_shredded_variant
from pypaimon.filesystem.local_file_io import LocalFileIO
from pypaimon.filesystem.oss_file_io import OssFileIO
from pypaimon.filesystem.pyarrow_file_io import PyArrowFileIO
from pypaimon.filesystem.resolving_file_io import ResolvingFileIO
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.manifest_entry import ManifestEntry
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.read.plan import Plan as PaimonPlan
from pypaimon.read.scanner.changelog_follow_up_scanner import ChangelogFollowUpScanner as PaimonChangelogFollowUpScanner
from pypaimon.read.scanner.follow_up_scanner import FollowUpScanner as PaimonFollowUpScanner
from pypaimon.read.split import DataSplit
from pypaimon.schema.data_types import (
    ArrayType,
    AtomicType,
    DataField,
    DataType,
    MapType,
    MultisetType,
    PyarrowFieldParser,
    RowType,
    VectorType,
)
from pypaimon.schema.table_schema import TableSchema
from pypaimon.table.row.binary_row import BinaryRow
from pypaimon.table.row.blob import Blob as PaimonBlob
from pypaimon.table.row.blob import BlobDescriptor, BlobViewStruct
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer, GenericRowSerializer
from pypaimon.table.row.offset_row import OffsetRow
from pypaimon.table.row.row_kind import RowKind
from pypaimon.table.source.deletion_file import DeletionFile
from pypaimon.table.special_fields import SpecialFields
from pypaimon.utils.path import resolve_path, to_file_io_path

__all__ = [
    "JSON",
    "ArrayType",
    "AtomicType",
    "BinaryRow",
    "BlobDescriptor",
    "BlobViewStruct",
    "ConfigOption",
    "CoreOptions",
    "DataField",
    "DataFileMeta",
    "DataSplit",
    "DataType",
    "DatabaseNotExistException",
    "DeletionFile",
    "GenericRow",
    "GenericRowDeserializer",
    "GenericRowSerializer",
    "Identifier",
    "ManifestEntry",
    "MapType",
    "MultisetType",
    "OffsetRow",
    "Options",
    "PaimonBlob",
    "PaimonChangelogFollowUpScanner",
    "PaimonFollowUpScanner",
    "PaimonPlan",
    "PyarrowFieldParser",
    "RowKind",
    "RowType",
    "SimpleStats",
    "SpecialFields",
    "TableNoPermissionException",
    "TableNotExistException",
    "TableSchema",
    "Timestamp",
    "VectorType",
    "arrow_file_io",
    "assemble_shredded_column",
    "build_variant_schema",
    "catalog_options",
    "entries_of",
    "is_filesystem_catalog",
    "is_paimon_table",
    "is_shredded_variant",
    "local_path",
    "map_key_serializer",
    "new_file_io",
    "object_stream",
    "resolve_path",
    "table_names",
    "table_with_schema",
    "to_file_io_path",
]


_REST_FILE_IO = "pypaimon.catalog.rest.rest_token_file_io.RESTTokenFileIO"
"""By name, since its module imports the whole REST API."""


def local_path(uri: str) -> str:
    """The path of a `file:` URI on this machine, decoded as pypaimon's local FileIO does."""
    return str(LocalFileIO()._to_file(uri))


class _EntriesOnly(LocalFileIO):
    """Lists one directory without asking for the status of each entry, as pypaimon's listing does one by one.

    Args:
        file_io: pypaimon's FileIO.
        directory: The directory.
    """

    def __init__(self, file_io: LocalFileIO, directory: str) -> None:
        self.__dict__.update(file_io.__dict__)
        self._directory = directory

    def get_file_status(self, path: str) -> Any:
        return _Entry(self, path)

    @cached_property
    def are_directories(self) -> dict[str, bool]:
        """Which entries are directories, by name, as the directory itself records it."""
        with os.scandir(self._to_file(self._directory)) as found:
            return {each.name: self.is_dir(each.path) if each.is_symlink() else each.is_dir() for each in found}

    def is_dir(self, path: str) -> bool:
        return bool(self._to_file(path).is_dir())


class _Entry:
    """A directory entry: a status without size and time.

    Attributes:
        path: Its path, absolute.
        base_name: The last part of the path or URI that it was found under.
    """

    def __init__(self, listed: _EntriesOnly, path: str) -> None:
        self._listed = listed
        self._found_as = path
        self.path = str(listed._to_file(path).absolute())
        self.base_name = os.path.basename(path)

    @property
    def type(self) -> FileType:
        """Whether it is a directory."""
        is_directory = self._listed.are_directories.get(os.path.basename(self.path))
        if is_directory is None:
            # It is newer than the listing that recorded the kinds.
            is_directory = self._listed.is_dir(self._found_as)
        return FileType.Directory if is_directory else FileType.File


def _is_plain_local(file_io: Any) -> bool:
    return type(file_io) is LocalFileIO and not {"list_status", "get_file_status"} & vars(file_io).keys()


def entries_of(file_io: Any, directory: str) -> list[Any]:
    """The entries of a directory, with `path` and perhaps no `size` or `mtime`. One request."""
    lister = _EntriesOnly(file_io, directory) if _is_plain_local(file_io) else file_io
    return list(lister.list_status(directory))


def input_stream(file_io: Any, path: str) -> Any:
    """Open a file for reading.

    pypaimon looks first whether a local file exists. Opening it answers that too, in half the time. Raises
    FileNotFoundError if there is no such file.
    """
    if not (_is_plain_local(file_io) and _is_untouched(file_io)):
        return file_io.new_input_stream(path)
    try:
        return open(path if path.startswith("/") else file_io._to_file(path), "rb")
    except (NotADirectoryError, ValueError) as error:
        # No file can have this path: one of its directories is a file, or it holds a null byte.
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error


def table_names(catalog: Any, database: str) -> list[str]:
    """The names of the tables of a database, as the catalog lists them. Two requests in a local file system.

    Raises:
        DatabaseNotExistException: There is no such database.
    """
    if not (is_filesystem_catalog(catalog) and _is_plain_local(catalog.file_io)):
        return list(catalog.list_tables(database))
    catalog, files = copy(catalog), catalog.file_io
    catalog.file_io = lister = _EntriesOnly(files, catalog.get_database_path(database))
    try:
        names = list(catalog.list_tables(database))
        # Without a directory pypaimon lists nothing, as if the database had no tables.
        return names if lister.are_directories else []
    except FileNotFoundError as error:
        raise DatabaseNotExistException(database) from error


def is_filesystem_catalog(catalog: Any) -> bool:
    """Whether it is pypaimon's own file system catalog, which finds tables by their directories."""
    return _full_name(catalog) == "pypaimon.catalog.filesystem_catalog.FileSystemCatalog"


def table_with_schema(catalog: Any, identifier: Identifier, schema: TableSchema) -> Any:
    """A table of a file system catalog, whose latest schema is known. Makes no request."""
    knowing = copy(catalog)
    knowing.get_table_schema = lambda _: schema
    return knowing.get_table(identifier)


def arrow_file_io(file_io: Any, path: str) -> Any:
    """pypaimon's own FileIO over Arrow's S3 that serves a path, unwrapped; None for any other FileIO.

    For a REST catalog's FileIO it is the one with the current token, for which the catalog may be asked.
    """
    if _full_name(file_io) == _REST_FILE_IO and _is_untouched(file_io):
        file_io = file_io.file_io()
    if type(file_io) is ResolvingFileIO and _is_untouched(file_io):
        file_io = file_io._get_fileio(path)
    own = type(file_io) in (PyArrowFileIO, OssFileIO) and _is_untouched(file_io)
    return file_io if own and type(file_io.filesystem) is S3FileSystem else None


def new_file_io(root: str, options: Mapping[str, str], *, of_catalog: bool) -> Any:
    """pypaimon's FileIO for a path, with the cache that a catalog with these options gives its tables."""
    from pypaimon.common.file_io import FileIO
    from pypaimon.filesystem.caching_file_io import CachingFileIO

    given = Options(dict(options))
    file_io = FileIO.get(root, given)
    if not of_catalog:
        return file_io
    return CachingFileIO.wrap_with_caching_if_needed(file_io, given, CachingFileIO.create_cache_manager(given))


def is_paimon_table(table: object) -> bool:
    """Whether it is pypaimon's handle of a table in Paimon's own format. Imports the module of these handles."""
    from pypaimon.table.file_store_table import FileStoreTable

    return isinstance(table, FileStoreTable)


def _full_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _is_untouched(file_io: Any) -> bool:
    return not {"new_input_stream", "new_output_stream"} & vars(file_io).keys()


def object_stream(file_io: Any, path: str) -> Any:
    """A stream into a new object by pypaimon's own FileIO over Arrow's S3; None for any other FileIO.

    Unlike the FileIO's `new_output_stream` it makes no two requests for the directory, which objects do not need.
    """
    arrow = arrow_file_io(file_io, path)
    return None if arrow is None else arrow.filesystem.open_output_stream(arrow.to_filesystem_path(path))
