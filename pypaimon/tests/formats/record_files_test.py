"""Manifests in ORC and in Parquet hold what they hold in Avro, whatever the table's `manifest.format` says today."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from pypaimon.streaming.metadata.index_manifests import parse_index_manifest
from pypaimon.streaming.metadata.manifest_tables import list_parser, manifest_parser
from support.corpus.cases import unpack
from support.samples import SOAK, is_drawn

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ONE_IN = 1 if SOAK else 40
"""Each file of the corpus is in the sample of one in so many commits; the few index manifests are in all."""
PARSERS: dict[str, Callable[[bytes], Any]] = {
    "manifest-list": list_parser(),
    "index-manifest": parse_index_manifest,
    "manifest": manifest_parser(),
}


def _parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(table, out)
    return out.getvalue()


def _orc(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pyarrow.orc.write_table(table, out)
    return out.getvalue()


def _plain(value: Any) -> Any:
    """Times as the formats have them, and without nulls, whose type Arrow could not tell."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def _table(data: bytes) -> pa.Table | None:
    """The records as a column-oriented writer has them; None where there are none."""
    records = [_plain(record) for record in fastavro.reader(io.BytesIO(data))]
    if not records:
        return None
    names = dict.fromkeys(name for record in records for name in record)
    table = pa.Table.from_pylist([{name: record.get(name) for name in names} for record in records])
    return table.cast(pa.schema([(field.name, _typed(field.type)) for field in table.schema]))


def _typed(type_: pa.DataType) -> pa.DataType:
    """The type, with strings in lists that are all empty."""
    if pa.types.is_null(type_):
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(_typed(type_.value_type))
    if pa.types.is_struct(type_):
        fields = (type_.field(index) for index in range(type_.num_fields))
        return pa.struct([(field.name, _typed(field.type)) for field in fields])
    return type_


def _corpus() -> Iterable[tuple[str, bytes]]:
    """The manifests of the newest archive, with their kind."""
    for path in sorted(unpack("java-2.1").glob("*/wh/d.db/t/manifest/*")):
        kind = next((kind for kind in PARSERS if path.name.startswith(kind)), None)
        if kind == "index-manifest" or (kind is not None and is_drawn(path.name, ONE_IN)):
            yield kind, path.read_bytes()


@pytest.mark.parametrize("write", [_parquet, _orc], ids=["parquet", "orc"])
def test_another_format_holds_the_same(write: Callable[[pa.Table], bytes]) -> None:
    kinds = set()
    for kind, data in _corpus():
        table = _table(data)
        if table is not None:
            assert PARSERS[kind](write(table)) == PARSERS[kind](data)
            kinds.add(kind)
    assert kinds == set(PARSERS)


@pytest.mark.parametrize("write", [_parquet, _orc], ids=["parquet", "orc"])
def test_a_damaged_file_is_never_read_over(write: Callable[[pa.Table], bytes]) -> None:
    kind, data = next(each for each in _corpus() if each[0] == "manifest")
    whole = write(_table(data))
    for length in {8, len(whole) // 2, len(whole) - 1}:
        with pytest.raises(ValueError, match="not a sound file"):
            PARSERS[kind](whole[:length])
