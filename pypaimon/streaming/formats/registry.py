"""The formats of data files, and what each of them can hold. All lists of formats are made from `FORMATS`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.formats.avro_files import AvroFileReader, AvroFileWriter
from pypaimon.streaming.formats.external_formats import LanceFileReader, MosaicFileReader, VortexFileReader
from pypaimon.streaming.formats.file_format import (
    FileContext,
    Format,
    FormatReader,
    FormatWriter,
    WriteSettings,
)
from pypaimon.streaming.formats.orc_reader import OrcFileReader
from pypaimon.streaming.formats.orc_writer import OrcFileWriter
from pypaimon.streaming.formats.parquet_reader import ParquetFileReader
from pypaimon.streaming.formats.parquet_writer import ParquetFileWriter
from pypaimon.streaming.formats.row_format import RowFileReader
from pypaimon.streaming.formats.row_writer import RowFileWriter
from pypaimon.streaming.model.arrow_types import arrow_type, leaf_types
from pypaimon.streaming.model.data_types import type_names


def _of_file(reader: Callable[[Any], FormatReader]) -> Callable[[Any, FileContext], FormatReader]:
    return lambda stream, context: reader(stream)


FORMATS = {
    each.name: each
    for each in (
        Format(
            "parquet",
            _of_file(ParquetFileReader),
            ParquetFileWriter,
            damage_words=("Parquet", "thrift", "Unexpected end of stream"),
            own_types=frozenset({"VARIANT", "VECTOR"}),
        ),
        Format(
            "orc",
            lambda stream, context: OrcFileReader(stream, context.local_zone),
            OrcFileWriter,
            damage_words=("ORC",),
            pads_char=True,
        ),
        Format(
            "avro",
            _of_file(AvroFileReader),
            AvroFileWriter,
            nanoseconds=False,
            own_types=frozenset({"VECTOR"}),
        ),
        Format(
            "row",
            lambda stream, context: RowFileReader(stream, context.stored_fields()),
            RowFileWriter,
            damage_words=("row file", "Row file"),
            own_types=frozenset({"VECTOR"}),
        ),
        Format("lance", _of_file(LanceFileReader), extra="lance"),
        Format("vortex", _of_file(VortexFileReader), extra="vortex"),
        Format("mosaic", _of_file(MosaicFileReader), extra="mosaic"),
    )
}
"""By name."""

WRITABLE = {name: each for name, each in FORMATS.items() if each.writer is not None}

DAMAGE_WORDS = (
    *("orrupt", "alformed", "decompress", "footer"),
    *(word for each in FORMATS.values() for word in each.damage_words),
)
"""Parts of messages of errors that a damaged file causes, and not the store."""


def new_file(name: str, stream: Any, schema: pa.Schema, settings: WriteSettings) -> FormatWriter:
    """Start a file of a format. Raises StreamConfigError if the format has no such codec, UnsupportedTableError if the
    format has no such type.
    """
    writer = FORMATS[name].writer
    assert writer is not None
    return writer(stream, schema, settings)


def check_format(name: str, fields: Sequence[Any]) -> None:
    """Refuse a table whose columns a format cannot hold as Java needs them, before the first row. Raises
    UnsupportedTableError if a column cannot be written; the message names it.
    """
    if not FORMATS[name].nanoseconds:
        for field in fields:
            if any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in leaf_types(arrow_type(field.type))):
                others = [each for each in WRITABLE.values() if each.nanoseconds]
                raise _refused(field, name, f"and {name.capitalize()} holds no nanoseconds", others)
    names = [(field, set(type_names(field.type))) for field in fields]
    for kind in dict.fromkeys(kind for each in WRITABLE.values() for kind in sorted(each.own_types)):
        homes = [each for each in WRITABLE.values() if kind in each.own_types]
        for field, found in names:
            if kind in found and FORMATS[name] not in homes:
                raise _refused(field, name, f"which is written into {_names(homes)} files only", homes)


def _refused(field: Any, name: str, reason: str, instead: Sequence[Format]) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"Column '{field.name}' is {field.type}, {reason}; 'file.format' = '{name}' cannot hold it. "
        f"Set it to {_names(instead)}."
    )


def _names(formats: Sequence[Format]) -> str:
    return " or ".join(each.name for each in formats)
