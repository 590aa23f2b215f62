"""Tables of Spark's catalog (`CREATE TABLE ... USING pypaimon`): how a read finds the table of Paimon that one names.

Spark hands the options of `CREATE TABLE` to a Python source once, when it asks for the columns, and never again. So
the columns carry them: Spark keeps the metadata of the first one in its catalog and gives it to each read. A write gets
the columns of its query, whose metadata may be those of the table that it reads: they say nothing of where it writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import StructField, StructType

_METADATA = "pypaimon"
_OPTION = "option."
_SECRET = re.compile("secret|password|token|access.?key|credential", re.IGNORECASE)


def stated_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options that a user gave where Spark asks for the columns; of `CREATE TABLE` without what Spark adds.

    Spark adds its own (`provider`, `owner`, `location`, ...) and table properties, and gives each option once more with
    a prefix; of a path it gives no copy.
    """
    if "provider" not in options:
        return dict(options)
    stated = {key[len(_OPTION) :]: value for key, value in options.items() if key.startswith(_OPTION)}
    path = options.get("path", options.get("location"))
    return stated if path is None or "table" in stated else {**stated, "path": path}


def for_catalog(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns for Spark: as they are, or for `CREATE TABLE` with the user's options in the first one.

    Raises:
        StreamConfigError: Options hold secrets, which do not belong into columns.
    """
    if "provider" not in options:
        return schema
    stated = stated_options(options)
    secret = next((key for key in stated if _SECRET.search(key)), None)
    if secret is not None:
        from pypaimon.streaming.errors import StreamConfigError

        raise StreamConfigError(
            f"Option '{secret}' of CREATE TABLE: a catalog must not store a secret. Use credentials of the "
            "machine, or CREATE TEMPORARY VIEW ... USING pypaimon OPTIONS (...), which is kept in the session alone."
        )
    first, *others = schema.fields
    metadata = {**first.metadata, _METADATA: json.dumps(stated)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def of_catalog(options: Mapping[str, str], schema: StructType) -> tuple[dict[str, str], StructType]:
    """The options of a read, over those of the table of Spark's catalog, and the columns without these.

    Args:
        options: Those of the read: of a table of the catalog only what `WITH (...)` or `.option` say.
        schema: The columns as Spark has them.
    """
    fields = [StructField(each.name, each.dataType, each.nullable, _without(each.metadata)) for each in schema.fields]
    text = schema.fields[0].metadata.get(_METADATA) if schema.fields else None
    named = "table" in options or "path" in options
    return {**(json.loads(text) if text and not named else {}), **options}, StructType(fields)


def _without(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in metadata.items() if key != _METADATA}
