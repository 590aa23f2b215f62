"""A table's merge engine, made from its schema and options; what cannot be merged is refused before any read."""

from __future__ import annotations

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.internals import TableSchema
from pypaimon.streaming.merge.deduplicate import Deduplicate
from pypaimon.streaming.merge.first_row import FirstRow
from pypaimon.streaming.merge.groups import EngineBase, MergeEngine
from pypaimon.streaming.option_values import OptionValues

_IGNORE_DELETE = (
    "ignore-delete",
    "first-row.ignore-delete",
    "deduplicate.ignore-delete",
    "partial-update.ignore-delete",
)


def merge_engine(schema: TableSchema) -> MergeEngine:
    """The merge engine of a primary-key table, as Java's `PrimaryKeyTableUtils.createMergeFunctionFactory` chooses it.

    Args:
        schema: The schema that rows are read with; its options decide.

    Raises:
        UnsupportedTableError: The engine, an aggregate function or another option is not supported; the message
            names it.
        StreamConfigError: The options contradict each other or the schema, as Java finds them to.
    """
    options = OptionValues(schema.options)
    name = (options.text("merge-engine") or "deduplicate").strip().lower().replace("_", "-")
    if options.boolean("sequence.snapshot-ordering", False):
        raise UnsupportedTableError("The option 'sequence.snapshot-ordering' is not supported.")
    base = EngineBase(_keys(schema), _sequence(schema, options, name), _ascending(options))
    ignore_delete = _ignore_delete(options)
    if name == "deduplicate":
        return Deduplicate(base.keys, base.sequence, base.ascending, ignore_delete=ignore_delete)
    if name == "first-row":
        return FirstRow(base.keys, ignore_delete=ignore_delete)
    raise UnsupportedTableError(f"The merge engine '{name}' is not supported.")


def _ignore_delete(options: OptionValues) -> bool:
    return next((options.boolean(key, False) for key in _IGNORE_DELETE if options.text(key) is not None), False)


def _keys(schema: TableSchema) -> tuple[str, ...]:
    keys = tuple(name for name in schema.primary_keys if name not in schema.partition_keys)
    if not keys:
        raise StreamConfigError(
            f"There is nothing to merge by: primary key {schema.primary_keys}, partition keys {schema.partition_keys}. "
            "A primary key must have a column that is no partition column."
        )
    return keys


def _ascending(options: OptionValues) -> bool:
    return options.one_of("sequence.field.sort-order", ("ascending", "descending"), "ascending") == "ascending"


def _sequence(schema: TableSchema, options: OptionValues, engine: str) -> tuple[str, ...]:
    text = options.text("sequence.field")
    if not text:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    known = {field.name for field in schema.fields}
    for name in names:
        if name not in known:
            raise StreamConfigError(f"Sequence field '{name}' is not a field of the table: {sorted(known)}.")
        if options.text(f"fields.{name}.aggregate-function") is not None:
            raise StreamConfigError(f"Sequence field '{name}' must not have an aggregate function.")
    if len(set(names)) < len(names):
        raise StreamConfigError(f"A sequence field is defined more than once: sequence.field = {text}.")
    if engine == "first-row":
        raise StreamConfigError("Merge engine first-row takes the first record; it cannot have a sequence.field.")
    return names
