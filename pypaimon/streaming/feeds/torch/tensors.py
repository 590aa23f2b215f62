"""Record batches as tensors. Tensors of numbers share the memory of Arrow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.dlpack import from_dlpack

from pypaimon.streaming.errors import NullColumnError


def tensors(batch: pa.RecordBatch, fill_nulls: Mapping[str, Any]) -> dict[str, torch.Tensor | list[Any]]:
    """The columns of a batch by name: tensors if the type allows it, otherwise lists of Python values.

    Raises:
        NullColumnError: A column that becomes a tensor has nulls without a value to use instead.
    """
    return {name: _column(name, batch.column(name), fill_nulls) for name in batch.schema.names}


def _column(name: str, column: pa.Array, fill_nulls: Mapping[str, Any]) -> torch.Tensor | list[Any]:
    if name in fill_nulls and column.null_count:
        column = pc.fill_null(column, fill_nulls[name])
    kind = column.type
    if _is_number(kind):
        _refuse_nulls(name, column)
        return _tensor(column)
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        _refuse_nulls(name, column)
        values = column.flatten()
        _refuse_nulls(name, values)
        return _tensor(values).reshape(-1, kind.list_size)
    return list(column.to_pylist())


def _refuse_nulls(name: str, values: pa.Array) -> None:
    if values.null_count:
        raise NullColumnError(name, values.null_count)


@cache
def _is_number(kind: pa.DataType) -> bool:
    if pa.types.is_temporal(kind):
        return not pa.types.is_interval(kind)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _tensor(values: pa.Array) -> torch.Tensor:
    kind = values.type
    if kind == pa.bool_():
        # Arrow stores booleans as bits, torch as bytes.
        return torch.from_numpy(values.to_numpy(zero_copy_only=False))
    if pa.types.is_temporal(kind):
        values = values.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    return from_dlpack(values)
