"""A data or changelog file as record batches in the read schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from cachetools import LRUCache

from pypaimon.streaming.concurrency.forking import cache_lock
from pypaimon.streaming.errors import (
    CorruptTableError,
    PaimonStreamError,
    SchemaChangedError,
    UnsupportedContentError,
    UnsupportedFileError,
    UnsupportedTableError,
)
from pypaimon.streaming.files.casts import CastError
from pypaimon.streaming.files.orc_local_zones import LocalZones
from pypaimon.streaming.files.schema_mapping import MappedColumn, map_columns
from pypaimon.streaming.files.shared_shredding import has_shredded_maps
from pypaimon.streaming.formats.file_format import Format, FormatReader, LocalZone
from pypaimon.streaming.formats.registry import DAMAGE_WORDS, FORMATS
from pypaimon.streaming.io.binary_file import read_fully
from pypaimon.streaming.io.conditional_writes import is_local
from pypaimon.streaming.io.io_requests import one_request
from pypaimon.streaming.io.local_files import open_local, read_local, step_by_step
from pypaimon.streaming.io.remote_files import is_read_whole, open_remote, read_part
from pypaimon.streaming.io.request_errors import translated
from pypaimon.streaming.metadata.file_paths import ByteRange, SpelledPath, merged_changelog_range
from pypaimon.streaming.model import row_kinds
from pypaimon.streaming.model.arrow_types import arrow_schema
from pypaimon.streaming.model.system_columns import KEY_PREFIX, ROW_ID, SEQUENCE_NUMBER, SYSTEM_TYPES
from pypaimon.streaming.model.time_zone import TimeZone
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.stream_options import DEFAULT_BATCH_SIZE
from pypaimon.streaming.paimon.internals import DataField, DataFileMeta, SpecialFields, TableSchema

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory

_KEPT_FIELDS = 50_000
"""Fields of tables and files in what is kept about kinds of files: about 10 MB."""


def read_file(
    directory: TableDirectory,
    file: DataFileMeta,
    fields: Sequence[DataField],
    *,
    schema_id: int,
    system_columns: Sequence[str] = (),
    batch_size: int = DEFAULT_BATCH_SIZE,
    constants: Mapping[str, pa.Scalar] | None = None,
    content: bytes | pa.Buffer | None = None,
) -> Iterator[pa.RecordBatch]:
    """All records of one file, in stored order.

    Columns are found by field id through the schema that the file was written with: renamed columns keep their values,
    a name that was dropped and added again is another column, columns that the file lacks are null, changed types are
    cast (see `casts`).

    Args:
        file: The file, with `file_path` as in the manifest; a merged changelog file is read from its byte range.
        schema_id: Id of the schema of `fields`. For files of a newer schema any loss in a cast is an error.
        system_columns: Any of `_SEQUENCE_NUMBER`, `_VALUE_KIND`, `_ROW_ID`, appended in this order.
        constants: Values of columns that are the same in the whole file, and are not read from it; by name.
        content: All bytes of the file, from `content_of`; None: open the file.

    Yields:
        Batches with the Arrow types of `arrow_types`, then the system columns as int64, int8, int64.

    Raises:
        FileNotFoundError: The file is missing.
        CorruptTableError: The file is damaged, or its number of rows differs from the manifest.
        SchemaChangedError: A value does not fit the type that is read.
        UnsupportedFileError: Its format, or something in it, is not supported.
    """
    path = located(directory, file.file_path) if content is None else str(file.file_path)
    with _errors(path, schema_id, file.schema_id), _opened(directory, file, path, file.file_size, content) as source:
        _check_count(path, source.num_rows, file.row_count)
        kind = _FileKind(
            source.schema.remove_metadata(),
            directory.schema(file.schema_id).fields,
            tuple(fields),
            tuple(system_columns),
            tuple(constants or ()),
            exact=file.schema_id > schema_id,
            zone=directory.zone,
            trim_char=_format_of(path).pads_char,
        )
        found = _columns_of(kind)
        columns = found.of_file(constants) if constants else found.mapped
        position = 0
        batches = _physical_batches(source, found.stored, batch_size)
        for batch in step_by_step(batches) if is_local(path) else batches:
            arrays = [column.read(batch) for column in columns]
            arrays += [_system_column(name, batch, file, position) for name in system_columns]
            position += batch.num_rows
            yield pa.RecordBatch.from_arrays(arrays, schema=found.schema)
        _check_count(path, position, file.row_count)


@dataclass(frozen=True, slots=True, eq=False)
class _FileKind:
    """What decides how the columns of a file become those that are read. Equal for most files of a table.

    Fields and time zones have no hash, so they are compared as objects: schemas and layouts, which hold them, are kept.
    """

    stored: pa.Schema  # Without metadata of the file; that of a field may say how its column is stored
    file_fields: Sequence[DataField]
    fields: tuple[DataField, ...]  # Not as a list: each bucket that is merged makes one of its own
    system_columns: tuple[str, ...]
    constants: tuple[str, ...]
    exact: bool
    zone: TimeZone
    trim_char: bool

    def _but_stored(self) -> tuple[object, ...]:
        objects = id(self.file_fields), *map(id, self.fields), id(self.zone)
        return objects, self.system_columns, self.constants, self.exact, self.trim_char

    def __hash__(self) -> int:
        return hash(self._but_stored())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _FileKind) or self._but_stored() != other._but_stored():
            return False
        return bool(self.stored.equals(other.stored, check_metadata=True))


@dataclass(frozen=True, slots=True)
class _FileColumns:
    """How files of one kind become batches."""

    mapped: list[MappedColumn]
    stored: list[str]  # The columns that are read
    schema: pa.Schema  # Of the batches
    size: int  # Fields that the kind and the columns hold

    def of_file(self, constants: Mapping[str, pa.Scalar]) -> list[MappedColumn]:
        pairs = zip(self.mapped, self.schema.names, strict=False)
        return [replace(each, constant=constants[name]) if name in constants else each for each, name in pairs]


def _columns_of(kind: _FileKind) -> _FileColumns:
    # Shredded maps have keys of their own in each file, perhaps millions, so they are neither looked up nor kept.
    if has_shredded_maps(kind.stored):
        return _mapped_columns(kind)
    with _lock.held:
        found = _kept.get(kind)
    if found is None:
        found = _mapped_columns(kind)
        if found.size <= _kept.maxsize:
            with _lock.held:
                _kept[kind] = found
    return found


def _mapped_columns(kind: _FileKind) -> _FileColumns:
    mapped = map_columns(
        kind.stored,
        kind.file_fields,
        kind.fields,
        exact=kind.exact,
        zone=kind.zone,
        trim_char=kind.trim_char,
        constants=dict.fromkeys(kind.constants),
    )
    names = [column.source for column in mapped if column.source is not None]
    names += [name for name in kind.system_columns if name in kind.stored.names]
    schema = _output_schema(kind.fields, kind.system_columns)
    return _FileColumns(mapped, list(dict.fromkeys(names)), schema, len(kind.file_fields) + len(kind.fields) + 1)


_kept: LRUCache[_FileKind, _FileColumns] = LRUCache(_KEPT_FIELDS, getsizeof=lambda found: found.size)
_lock = cache_lock(_kept)


def content_of(directory: TableDirectory, file: DataFileMeta) -> bytes | pa.Buffer | None:
    """All bytes of a small file, by one request; None: it is large, or a part of another file. Raises FileNotFoundError
    if the file is missing.
    """
    if not is_read_whole(file.file_size) or merged_changelog_range(str(file.file_path)):
        return None
    path = located(directory, file.file_path)
    with _errors(path, file.schema_id, file.schema_id):
        return read_local(directory.table.file_io, path) if is_local(path) else directory.store.read(path)


def located(directory: TableDirectory, path: str) -> str:
    """The path of a file. Needs one or two requests if its partition can be spelled in two ways."""
    if isinstance(path, SpelledPath):
        exists = partial(directory.store.call, "exists", request=directory.table.file_io.exists)
        return path.other if not exists(path) and exists(path.other) else str(path)
    return str(path)


def column_names(directory: TableDirectory, file: DataFileMeta) -> frozenset[str]:
    """The columns of a data file, from its metadata. Raises FileNotFoundError if the file is missing."""
    path = located(directory, file.file_path)
    with _errors(path, file.schema_id, file.schema_id), _opened(directory, file, path, None) as source:
        return frozenset(source.schema.names)


def _check_count(path: str, found: int, recorded: int) -> None:
    # A file that was cut between two blocks, or replaced by another, may be read without an error.
    if found != recorded:
        raise CorruptTableError(path, f"it holds {found} rows, its manifest says {recorded}")


def _output_schema(fields: Sequence[DataField], system_columns: Sequence[str]) -> pa.Schema:
    schema = arrow_schema(fields)
    for name in system_columns:
        schema = schema.append(pa.field(name, SYSTEM_TYPES[name], nullable=False))
    return schema


def _physical_batches(source: FormatReader, columns: list[str], batch_size: int) -> Iterator[pa.RecordBatch]:
    if columns:
        yield from source.batches(columns, batch_size)
        return
    for start in range(0, source.num_rows, batch_size):
        length = min(batch_size, source.num_rows - start)
        yield pa.RecordBatch.from_arrays([pa.nulls(length)], names=["rows"])


def _system_column(name: str, batch: pa.RecordBatch, file: DataFileMeta, position: int) -> pa.Array:
    kind = SYSTEM_TYPES[name]
    array = batch.column(name).cast(kind) if name in batch.schema.names else None
    # As in Java a null stands for the number that the commit gave the row.
    if array is not None and not array.null_count:
        return array
    if name == ROW_ID:
        if file.first_row_id is None:
            raise UnsupportedTableError(f"{file.file_name} has no row ids: it was written without row tracking.")
        assigned = row_ids(file.first_row_id + position, batch.num_rows)
    elif name == SEQUENCE_NUMBER:
        assigned = constant(file.max_sequence_number, batch.num_rows)
    else:
        assigned = constant(row_kinds.INSERT, batch.num_rows).cast(kind)
    return assigned if array is None else pc.coalesce(array, assigned)


def row_ids(first: int, length: int) -> pa.Array:
    return pa.array(np.arange(first, first + length, dtype=np.int64))


def constant(value: int, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int64()), length)


@contextmanager
def _opened(
    directory: TableDirectory, file: DataFileMeta, path: str, size: int | None, content: bytes | pa.Buffer | None = None
) -> Iterator[FormatReader]:
    part = merged_changelog_range(path)
    opened = partial(_format_of(path).open, context=_FileContext(directory, file, path))
    if content is not None:
        yield opened(pa.BufferReader(content))
        return
    if part is not None and not is_local(path):
        yield opened(_content(part, read_part(directory.store, part.path, part.offset, part.length)))
        return
    # The size is that of the part, not of the file that holds it.
    with _bytes(directory, part.path, None) if part else _bytes(directory, path, size) as stream:
        with one_request(decodes=True) if is_local(path) else nullcontext():
            reader = opened(stream if part is None else _content(part, _of_stream(stream, part)))
        yield reader


def _format_of(path: str) -> Format:
    part = merged_changelog_range(path)
    name = part.format if part else path.rpartition(".")[2].lower()
    if name not in FORMATS:
        raise UnsupportedTableError(
            f"files of format {name!r} cannot be streamed; supported are {', '.join(sorted(FORMATS))}."
        )
    return FORMATS[name]


@dataclass(frozen=True)
class _FileContext:
    directory: TableDirectory
    file: DataFileMeta
    path: str

    def stored_fields(self) -> list[DataField]:
        return stored_fields(self.directory.schema(self.file.schema_id), self.file.write_cols)

    @property
    def local_zone(self) -> LocalZone:
        return LocalZones(self.directory, self.file, self.path)


def stored_fields(schema: TableSchema, write_cols: Sequence[str] | None) -> list[DataField]:
    """The columns of a file, in stored order. `write_cols` are those that the manifest names; None: all.

    A file of a primary-key table begins with copies of the key columns (unless `data-file.thin-mode` is set), the
    sequence number and the row kind. A file of data evolution may hold only some columns.
    """
    fields = list(schema.fields)
    if write_cols is not None:
        by_name = {field.name: field for field in (*fields, SpecialFields.ROW_ID, SpecialFields.SEQUENCE_NUMBER)}
        return [by_name[name] for name in write_cols]
    if not schema.primary_keys:
        return fields
    types = {field.name: field.type for field in fields}
    keys = [name for name in schema.primary_keys if name not in schema.partition_keys]
    if option_keys.DATA_FILE_THIN_MODE.of(schema.options):
        keys = []
    copies = [DataField(-1, KEY_PREFIX + name, types[name]) for name in keys]
    return [*copies, SpecialFields.SEQUENCE_NUMBER, SpecialFields.VALUE_KIND, *fields]


def _of_stream(stream: Any, part: ByteRange) -> bytes:
    stream.seek(part.offset)
    return read_fully(stream, part.length)


def _content(part: ByteRange, content: bytes) -> pa.BufferReader:
    if len(content) != part.length:
        raise CorruptTableError(part.path, f"it ends before byte {part.offset + part.length}")
    return pa.BufferReader(content)


@contextmanager
def _bytes(directory: TableDirectory, path: str, size: int | None) -> Iterator[Any]:
    if not is_local(path):
        with closing(open_remote(directory.store, path, size)) as remote:
            yield remote
        return
    with open_local(directory.table.file_io, path, size) as local:
        yield local


@contextmanager
def _errors(path: str, schema_id: int, file_schema_id: int) -> Iterator[None]:
    try:
        yield
    except CastError as error:
        older, newer = sorted((schema_id, file_schema_id))
        raise SchemaChangedError(older, newer, f"{error} (in {path})") from error
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, f"the data file is missing: {error}", path) from error
    except UnsupportedContentError as error:
        raise UnsupportedFileError(path, error.column, str(error)) from error
    except UnsupportedFileError:
        raise
    except UnsupportedTableError as error:
        raise UnsupportedFileError(path, None, str(error)) from error
    except (PaimonStreamError, MemoryError):
        raise
    except pa.ArrowNotImplementedError as error:
        detail = f"pyarrow {pa.__version__} does not read it ({error}). Install a newer pyarrow"
        raise UnsupportedFileError(path, None, detail) from error
    except (LookupError, TypeError, RecursionError) as error:
        raise CorruptTableError(path, f"the file is damaged: {error!r}") from error
    except (ValueError, EOFError, pa.ArrowException) as error:
        raise CorruptTableError(path, f"the file is damaged: {error}") from error
    except OSError as error:
        # Arrow's decoders and its stores raise the same class. An error of a local disk has an errno.
        on_disk = "://" not in path and error.errno is None
        if on_disk or any(word in str(error) for word in DAMAGE_WORDS):
            raise CorruptTableError(path, f"the file is damaged: {error}") from error
        raise translated(path, error) from error
