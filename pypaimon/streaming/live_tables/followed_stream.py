"""The stream that a live table follows: one whose records, applied in order, make the rows of the table."""

from __future__ import annotations

from dataclasses import replace

from pypaimon.streaming.apply_changes.changes import moved_by
from pypaimon.streaming.builder.assembly import StreamAssembly
from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.options.option_values import OptionValues
from pypaimon.streaming.options.stream_options import OnOverwrite, Unmatched

_HELP = "Give the table changelog-producer 'lookup' or 'full-compaction'."


def followed_stream(builder: StreamAssembly) -> StreamAssembly:
    """A copy of a builder that reads whatever changes the rows. Blocks while the table is not known.

    OVERWRITE snapshots are read; with a changelog producer that does not allow it they end the stream.

    Raises:
        UnsupportedTableError: The table has no primary key, or its changes come as records that are no whole rows, or
            not in the order that decides which one counts.
        StreamConfigError: The builder reads a view, records as they were written, or passes over OVERWRITE snapshots or
            over rows that have ceased to match its filter.
    """
    name = builder.table.identifier.get_full_name()
    if builder._view is not None:
        raise StreamConfigError(f"{name}, view {builder._view}: a live table holds the rows of the table itself")
    traits, given = builder._traits, builder._given
    if not traits.primary_key:
        raise UnsupportedTableError(f"{name} has no primary key, by which a live table finds its rows.")
    if moved := moved_by(builder._schema):
        raise UnsupportedTableError(
            f"{name}: the primary key lacks the partition columns {moved}, so that a row may move to another "
            "partition, and be set there before it is taken away where it was; a live table would lose it."
        )
    complete = traits.producer.complete
    if not complete and not traits.merge_engine.keeps_newest:
        raise UnsupportedTableError(
            f"{name} has merge engine {traits.merge_engine.value} and changelog-producer {traits.producer.value!r}: "
            f"a live table would take a record as it was written for a whole row. {_HELP}"
        )
    fields = OptionValues(builder._schema.options).text("sequence.field")
    if fields and not complete:
        raise UnsupportedTableError(
            f"{name} has sequence.field {fields!r} and changelog-producer {traits.producer.value!r}: its stream does "
            f"not say which record of a key is the newest, and a live table would keep the last written one. {_HELP}"
        )
    if given.raw:
        raise StreamConfigError(
            f"{name}: with_raw(True) reads records as they were written, which are no rows of a live table; leave it "
            "out."
        )
    if given.on_overwrite is OnOverwrite.SKIP:
        raise StreamConfigError(
            f"{name}: with_on_overwrite('skip') would leave a live table behind its table for ever; leave it out, or "
            "give 'fail', with which it ends there."
        )
    if given.unmatched is Unmatched.DROP:
        raise StreamConfigError(
            f"{name}: with_filter(..., unmatched='drop') does not tell that a row has ceased to match, and a live "
            "table would keep it; leave it out."
        )
    followed = builder.copy()
    if given.on_overwrite is None:
        followed._given = replace(given, on_overwrite=OnOverwrite.FAIL if complete else OnOverwrite.READ)
    return followed
