"""Types of columns that Java has and pypaimon has not: it cannot parse a schema with one, and says so deep down."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pypaimon.streaming.errors import UnsupportedTableError

_UNKNOWN = re.compile(r"Unknown type: (GEOMETRY|GEOGRAPHY)\b")


@contextmanager
def naming_unreadable_types(where: str) -> Iterator[None]:
    """Tell a schema that pypaimon cannot parse for the sake of a type from one that is damaged.

    Args:
        where: What has a column of the type.

    Raises:
        UnsupportedTableError: pypaimon failed at such a type.
    """
    try:
        yield
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None:
            if named := _UNKNOWN.search(str(cause)):
                raise UnsupportedTableError(
                    f"Columns of type {named[1]} cannot be streamed, and {where} has one. pypaimon has none."
                ) from error
            cause = cause.__cause__
        raise
