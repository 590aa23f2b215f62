"""The stream that every copy of a table follows: applied in order, its changes give the rows of the table.

Live tables, targets, `copy_stream` and `copy_database` all read it. A stream that would give other rows is refused
here, by name and before the first row.
"""

from __future__ import annotations

from dataclasses import replace

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.model.position import Position
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.start import Start, StartMode
from pypaimon.streaming.options.stream_options import OnExpired, OnOverwrite, Unmatched
from pypaimon.streaming.paimon.handles import ReadableTable
from pypaimon.streaming.spec.resolve import ResolvedStream
from pypaimon.streaming.spec.stream_spec import StreamSpec

_HELP = "Give the table changelog-producer 'lookup' or 'full-compaction'."


def spec_for_copy(stream: ResolvedStream, copied: Position | None) -> StreamSpec:
    """The spec of a stream that keeps a copy equal to the table. Blocks while the table is not known.

    The stream begins where the copy stands, not where a consumer does, because only the copy knows what it holds. If a
    snapshot removes rows that its changes do not name, the stream starts again with the full state: see
    `StateRestarts`.

    Args:
        copied: The position up to which the copy holds the table. None: the stream begins with the state.
    """
    spec = stream.spec
    _refuse_parts(spec)
    _refuse_table(stream)
    _refuse_other_records(stream)
    if copied is not None:
        start = Start(StartMode.FROM_POSITION, position=copied)
    else:
        start = spec.start or Start(StartMode.LATEST_FULL)
    # Java does not stream overwrites of producers with a complete changelog. There the state begins again.
    on_overwrite = spec.on_overwrite or (None if stream.traits.producer.complete else OnOverwrite.READ)
    # The options of the table may name a consumer too.
    consumer = stream.options.consumer
    consumer = consumer and replace(consumer, ignore_progress=True)
    return replace(spec, start=start, consumer=consumer, on_overwrite=on_overwrite, keeps_state=True)


def refuse_itself(source: ReadableTable, target: ReadableTable) -> None:
    """Refuse to copy a table into itself, which would never end. A branch is another table."""
    if _place(source) == _place(target):
        name = target.identifier.get_full_name()
        raise StreamConfigError(f"{name} is the source and the target of the copy: copy it into another table.")


def _place(table: ReadableTable) -> tuple[str, str]:
    return str(table.table_path).rstrip("/"), table.current_branch() or "main"


def _refuse_parts(spec: StreamSpec) -> None:
    if spec.include_row_kind is False:
        raise StreamConfigError(
            "with_include_row_kind(False): without the kinds of its rows a copy cannot distinguish deletes from "
            "inserts; leave it out."
        )
    if spec.between is not None:
        raise StreamConfigError(f"{spec.between.given} is a part of a table's history; a copy begins with its state.")
    if spec.start is not None and not spec.start.has_state:
        raise StreamConfigError(
            f"with_start: {spec.start.text!r} leaves out rows that did not change since. A copy begins with the state "
            "of the table, and continues where it stands: leave out with_start(...)."
        )
    if spec.on_expired in (OnExpired.EARLIEST, OnExpired.LATEST):
        raise StreamConfigError(
            f"with_on_expired({spec.on_expired.value!r}) skips changes that a copy needs: leave it out, or give "
            "'full', which begins with the state of the table again."
        )
    if spec.follow_up_scanner is not None:
        raise StreamConfigError("with_follow_up_scanner(...) may skip changes that a copy needs: leave it out.")


def _refuse_table(stream: ResolvedStream) -> None:
    """Refuse tables whose changes, applied in order, do not give their rows."""
    traits, name = stream.traits, stream.table.name
    if stream.table.chain is not None:
        raise UnsupportedTableError(
            f"{name} is a chain table: its stream does not see new partitions of the snapshot branch, so that a copy "
            "would lack them. Copy the branches, each as a table of its own."
        )
    if not traits.primary_key:
        return
    options = stream.schema.options
    if option_keys.RECORD_LEVEL_EXPIRE_TIME.set_as(options):
        raise UnsupportedTableError(
            f"{name} has 'record-level.expire-time': compactions drop expired rows without a change, so that a copy "
            "would keep them."
        )
    if traits.producer.complete:
        return
    if not traits.merge_engine.keeps_newest:
        raise UnsupportedTableError(
            f"{name} has merge engine {traits.merge_engine.value} and changelog-producer {traits.producer.value!r}: "
            f"a copy would take a record as it was written for a whole row. {_HELP}"
        )
    if fields := option_keys.SEQUENCE_FIELD.of(options):
        raise UnsupportedTableError(
            f"{name} has sequence.field {fields!r} and changelog-producer {traits.producer.value!r}: its stream does "
            f"not say which record of a key is the newest, and a copy would keep the last written one. {_HELP}"
        )


def _refuse_other_records(stream: ResolvedStream) -> None:
    """Refuse streams of records that are not the changes of the table's rows."""
    spec, name = stream.spec, stream.table.name
    keyed, complete = stream.traits.primary_key, stream.traits.producer.complete
    if spec.view is not None:
        raise StreamConfigError(f"{name}, view {spec.view}: a copy holds the rows of the table itself.")
    if spec.raw:
        raise StreamConfigError(
            f"{name}: with_raw(True) reads records as they were written, which are not the rows of the table; leave it "
            "out."
        )
    if spec.on_overwrite is OnOverwrite.SKIP:
        raise StreamConfigError(
            f"{name}: with_on_overwrite('skip') would make a copy differ from its table for ever; leave it out, or "
            "give 'fail', which ends the stream there."
        )
    if spec.unmatched is Unmatched.DROP and keyed and not complete:
        raise StreamConfigError(
            f"{name}: with_filter(..., unmatched='drop') does not report rows that match no longer, and a copy would "
            "keep them; leave it out."
        )
