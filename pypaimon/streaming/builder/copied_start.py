"""Where a stream begins whose rows are copied elsewhere: where the copy stands, or with the state of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from pypaimon.streaming.builder.assembly import StreamAssembly
from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options.start import Start, StartMode

B = TypeVar("B", bound=StreamAssembly)


def refuse_itself(source: Any, target: Any) -> None:
    """Refuse to copy a table into itself, where each commit would be a change to be copied; a branch is another table.

    Args:
        source: pypaimon's table.
        target: pypaimon's table that is written.

    Raises:
        StreamConfigError: They are one.
    """
    if _place(source) == _place(target):
        name = target.identifier.get_full_name()
        raise StreamConfigError(f"{name} is the source and the target of the copy: copy it into another table.")


def _place(table: Any) -> tuple[str, str]:
    return str(table.table_path).rstrip("/"), table.current_branch() or "main"


def started_for_copy(builder: B, copied: Position | None) -> B:
    """A copy of a builder that begins where a copy of the table stands.

    What a consumer has saved does not count: the copy knows better what it holds.

    Args:
        builder: How the table is read.
        copied: The copy holds what lies before; None: it holds nothing, and the state of the table comes first.

    Raises:
        StreamConfigError: The builder has a start without the state, a range, or leaves out the kinds of rows.
    """
    given = builder._given
    if builder._include_row_kind is False:
        raise StreamConfigError(
            "with_include_row_kind(False): without the kinds of its rows a copy cannot tell deletes from inserts; "
            "leave it out."
        )
    if given.between is not None:
        raise StreamConfigError(f"{given.between.given} is a part of a table's history; a copy begins with its state.")
    if given.start is not None and not given.start.has_state:
        raise StreamConfigError(
            f"with_start: {given.start.text!r} leaves out rows that did not change since. A copy begins with the state "
            "of the table, and goes on where it stands: leave out with_start(...)."
        )
    if copied is not None:
        start = Start(StartMode.FROM_POSITION, position=copied)
    else:
        start = given.start or Start(StartMode.LATEST_FULL)
    consumer = given.consumer and replace(given.consumer, ignore_progress=True)
    started = builder.copy()
    started._given = replace(given, start=start, consumer=consumer)
    return started


def begin_as_copy(builder: StreamAssembly) -> None:
    """Have a builder itself begin with the state of its table, as `started_for_copy`; a start may yet be set.

    Raises:
        StreamConfigError: See `started_for_copy`.
    """
    builder._given = started_for_copy(builder, None)._given
