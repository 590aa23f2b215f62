"""Makes a table's merge engine from its schema and options, and refuses tables that cannot be merged."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pypaimon.streaming.errors import StreamConfigError, UnsupportedTableError
from pypaimon.streaming.merge.engines.engine import Aggregation, Deduplicate, FirstRow, MergeEngine
from pypaimon.streaming.merge.engines.partial_update import PartialUpdate, SequenceGroup
from pypaimon.streaming.merge.functions.base import FieldAggregate
from pypaimon.streaming.merge.functions.registry import field_aggregate
from pypaimon.streaming.merge.ordering import is_ordered
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.table_kinds import ChangelogProducer, MergeEngineKind
from pypaimon.streaming.options.table_traits import merge_engine_of
from pypaimon.streaming.paimon.internals import TableSchema

_IGNORE_DELETE = option_keys.IGNORE_DELETE
_REMOVE_ON_DELETE = option_keys.PARTIAL_UPDATE_REMOVE_RECORD_ON_DELETE
_REMOVE_ON_GROUP = option_keys.PARTIAL_UPDATE_REMOVE_RECORD_ON_SEQUENCE_GROUP
_GROUP_PREFIX, _GROUP_SUFFIX = option_keys.FIELDS_SEQUENCE_GROUP.name.split("#")
_FILLING = "last_non_null_value"


def merge_engine(schema: TableSchema) -> MergeEngine:
    """The merge engine of a primary-key table, as in Java's `PrimaryKeyTableUtils.createMergeFunctionFactory`. Raises
    UnsupportedTableError if the engine, an aggregate function or another option is not supported.
    """
    return _EngineOptions(schema).engine()


class _EngineOptions:
    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self._options = schema.options
        self._types: dict[str, pa.DataType] = {field.name: arrow_type(field.type) for field in schema.fields}
        self._kind = merge_engine_of(schema.options)
        self._ignore_delete = _IGNORE_DELETE.of(self._options)

    def engine(self) -> MergeEngine:
        options = self._options
        keys, sequence = self._keys(), self._sequence()
        if sequence and option_keys.SEQUENCE_SNAPSHOT_ORDERING.of(options):
            raise StreamConfigError("'sequence.snapshot-ordering' and 'sequence.field' contradict each other; set one.")
        order = option_keys.SEQUENCE_FIELD_SORT_ORDER.of(options)
        ascending = order == "ascending"
        if self._kind is MergeEngineKind.DEDUPLICATE:
            return Deduplicate(keys, sequence, ascending, ignore_delete=self._ignore_delete)
        if self._kind is MergeEngineKind.FIRST_ROW:
            return FirstRow(keys, ignore_delete=self._ignore_delete)
        if self._kind is MergeEngineKind.PARTIAL_UPDATE:
            return self._partial_update(keys, sequence, ascending)
        remove = option_keys.AGGREGATION_REMOVE_RECORD_ON_DELETE.of(options)
        return Aggregation(keys, sequence, ascending, self._lookup(), self._aggregates(sequence), remove)

    def _keys(self) -> tuple[str, ...]:
        keys = tuple(name for name in self._schema.primary_keys if name not in self._schema.partition_keys)
        if not keys:
            raise StreamConfigError(
                f"There is nothing to merge by: primary key {self._schema.primary_keys}, partition keys "
                f"{self._schema.partition_keys}. A primary key must have a column that is not a partition column."
            )
        return keys

    def _sequence(self) -> tuple[str, ...]:
        text = option_keys.SEQUENCE_FIELD.of(self._options)
        if not text:
            return ()
        names = tuple(name.strip() for name in text.split(","))
        for name in names:
            self._require(name, option_keys.SEQUENCE_FIELD.name)
            self._require_order(name, option_keys.SEQUENCE_FIELD.name)
            if option_keys.FIELDS_AGGREGATE_FUNCTION.of_field(name).set_as(self._options):
                raise StreamConfigError(f"Sequence field '{name}' must not have an aggregate function.")
        if len(set(names)) < len(names):
            raise StreamConfigError(f"A sequence field is defined more than once: sequence.field = {text}.")
        if self._kind is MergeEngineKind.FIRST_ROW:
            raise StreamConfigError("Merge engine first-row takes the first record; it cannot have a sequence.field.")
        return names

    def _lookup(self) -> bool:
        """Whether compaction merges level 0 into higher levels record by record (Java's `CoreOptions.needLookup`)."""
        options = self._options
        return (
            option_keys.CHANGELOG_PRODUCER.of(options) is ChangelogProducer.LOOKUP
            or option_keys.DELETION_VECTORS_ENABLED.of(options)
            or option_keys.FORCE_LOOKUP.of(options)
        )

    def _aggregates(self, sequence: tuple[str, ...]) -> Mapping[str, FieldAggregate]:
        return {name: self._aggregate(self._function(name, sequence), name) for name in self._types}

    def _aggregate(self, function: str, name: str) -> FieldAggregate:
        return field_aggregate(function, name, self._types[name], self._options)

    def _function(self, name: str, sequence: tuple[str, ...]) -> str:
        if name in sequence:
            return "last_value"
        if name in self._schema.primary_keys:
            return "primary_key"
        return self._chosen(name) or _FILLING

    def _chosen(self, name: str) -> str | None:
        own = option_keys.FIELDS_AGGREGATE_FUNCTION.of_field(name).of(self._options)
        return option_keys.FIELDS_DEFAULT_AGGREGATE_FUNCTION.of(self._options) if own is None else own

    def _partial_update(self, keys: tuple[str, ...], sequence: tuple[str, ...], ascending: bool) -> MergeEngine:
        groups = self._groups()
        remove = _REMOVE_ON_DELETE.of(self._options)
        for first, second, both in (
            (_IGNORE_DELETE, _REMOVE_ON_DELETE, self._ignore_delete and remove),
            (_IGNORE_DELETE, _REMOVE_ON_GROUP, self._ignore_delete and _REMOVE_ON_GROUP.of(self._options)),
            ("sequence-group", _REMOVE_ON_DELETE, groups and remove),
        ):
            if both:
                raise StreamConfigError(f"'{first}' and '{second}' contradict each other; set one of them.")
        aggregates = self._aggregates_of(groups)
        return PartialUpdate(keys, sequence, ascending, self._lookup(), groups, aggregates, self._ignore_delete, remove)

    def _groups(self) -> tuple[SequenceGroup, ...]:
        removing = [name.strip() for name in (_REMOVE_ON_GROUP.of(self._options) or "").split(",") if name.strip()]
        groups = []
        taken: set[str] = set()
        for key, value in sorted(self._schema.options.items()):
            if not (key.startswith(_GROUP_PREFIX) and key.endswith(_GROUP_SUFFIX)):
                continue
            names = tuple(name.strip() for name in key[len(_GROUP_PREFIX) : -len(_GROUP_SUFFIX)].split(","))
            fields = tuple(name.strip() for name in value.split(",") if name.strip())
            for name in names:
                self._require_order(name, key)
            for name in names + fields:
                self._require(name, key)
                if name in self._schema.primary_keys:
                    raise StreamConfigError(
                        f"'{key}' holds '{name}', a column of the primary key, which cannot be in a group."
                    )
                if name in taken:
                    raise StreamConfigError(
                        f"Field '{name}' is in more than one sequence group, the last of them '{key}'."
                    )
                taken.add(name)
            groups.append(SequenceGroup(names, fields, bool(set(names).intersection(removing))))
        for name in removing:
            if not any(name in group.sequence for group in groups):
                raise StreamConfigError(
                    f"'{_REMOVE_ON_GROUP}' names '{name}', which is not a sequence field of a sequence group."
                )
        return tuple(groups)

    def _aggregates_of(self, groups: tuple[SequenceGroup, ...]) -> Mapping[str, FieldAggregate]:
        ordering = {name for group in groups for name in group.sequence}
        following = {name for group in groups for name in group.fields}
        aggregates = {}
        for name in self._types:
            function = self._chosen(name)
            if function is None or name in ordering or name in self._schema.primary_keys:
                continue
            if name in following:
                aggregates[name] = self._aggregate(function, name)
            elif function != _FILLING:
                raise StreamConfigError(
                    f"Field '{name}' has aggregate function '{function}' but is in no sequence group; merge engine "
                    f"partial-update needs one: 'fields.<sequence field>.sequence-group' = '{name}'."
                )
        return aggregates

    def _require(self, name: str, option: str) -> None:
        if name not in self._types:
            raise StreamConfigError(f"Field '{name}' of option '{option}' is not in the table: {list(self._types)}.")

    def _require_order(self, name: str, option: str) -> None:
        self._require(name, option)
        if not is_ordered(self._types[name]):
            raise UnsupportedTableError(
                f"Field '{name}' of option '{option}' has type {self._types[name]}, which has no order here."
            )
