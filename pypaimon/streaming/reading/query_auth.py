"""Row filters and column masks of a REST catalog (query auth): requested for each read, enforced or refused."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pypaimon.streaming.errors import UnsupportedTableError
from pypaimon.streaming.metadata.snapshots import catalog_error
from pypaimon.streaming.model.data_types import holds_blobs
from pypaimon.streaming.paimon.internals import DataField
from pypaimon.streaming.reading.records import Records

if TYPE_CHECKING:
    from pypaimon.streaming.metadata.table_directory import TableDirectory
    from pypaimon.streaming.paimon.read_internals import TableQueryAuthResult
    from pypaimon.streaming.reading.read_layout import ReadLayout


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for reading a table, as they are now."""

    result: TableQueryAuthResult
    filtered: frozenset[str]
    needed: frozenset[str]

    def refuse_upserts(self, keys: Collection[str]) -> None:
        """Refuse a stream of upserts whose row filter uses other columns than the key.

        A row that becomes hidden would have to come out as a delete, which would reveal it.
        """
        hidden = sorted(self.filtered - set(keys))
        if hidden:
            raise UnsupportedTableError(
                f"The catalog's row filter uses {', '.join(hidden)}. In a stream of upserts (changelog producer "
                "none or input, or overwrites) a row that may no longer be seen would stay downstream.",
                advice="Use a changelog producer lookup or full-compaction, or accept that with "
                "with_filter(..., unmatched='drop').",
                option="with_filter: unmatched",
            )

    def enforced(self, records: Iterable[Records], fields: Sequence[DataField]) -> Iterator[Records]:
        """Leave out hidden rows and mask columns. Both rules apply to the rows as they are stored."""
        for each in records:
            with_rules = _refusing(self._apply, each, fields)
            if with_rules.batch.num_rows:
                yield with_rules

    def _apply(self, records: Records, fields: Sequence[DataField]) -> Records:
        visible = self.result.extract_row_filter()
        if visible is not None:
            records = records.keep(visible(records.batch).fill_null(False))
        if not self.result.column_masking:
            return records
        from pypaimon.streaming.paimon.read_internals import apply_auth_masking, compile_auth_masking_rules

        batch, schema = records.batch, records.batch.schema
        masked = apply_auth_masking(batch, compile_auth_masking_rules(self.result.column_masking, list(fields)))
        if masked.schema.types != schema.types:
            changed = [new.name for old, new in zip(schema, masked.schema, strict=True) if old.type != new.type]
            raise ValueError(f"the mask of {', '.join(changed)} gives values of another type than the column has")
        return Records(masked, records.kinds)


class QueryAuth:
    """Requests the rules for reading a table from its catalog."""

    def __init__(self, directory: TableDirectory, ask: Any) -> None:
        self._directory = directory
        self._ask = ask

    @staticmethod
    def of(directory: TableDirectory) -> QueryAuth | None:
        """The rules of a table with `query-auth.enabled` in a REST catalog, else None."""
        table = directory.table
        ask = table.catalog_environment.table_query_auth(table.options, table.identifier)
        return None if ask is None else QueryAuth(directory, ask)

    def rules(self, layout: ReadLayout) -> Rules | None:
        """The current rules for the columns of a layout, or None. One request, two if there are rules. Raises
        UnsupportedTableError if the rules cannot be enforced, or use columns that do not exist.
        """
        columns = [field.name for field in layout.fields]
        result = self._request(lambda _: self._ask(columns))
        if result is None or not result.has_restrictions:
            return None
        from pypaimon.streaming.paimon.read_internals import latest_auth_fields

        latest = self._request(lambda _: latest_auth_fields(self._directory.table))
        rules: Rules = _refusing(_bound, result, layout, latest)
        return rules

    def _request(self, request: Any) -> Any:
        def ask(subject: str) -> Any:
            try:
                return request(subject)
            except (OSError, ValueError):
                raise
            except NotImplementedError as error:
                raise UnsupportedTableError(f"'query-auth.enabled' is set, but: {error}") from error
            except Exception as error:
                raise catalog_error(error) from error

        return self._directory.store.call("auth", str(self._directory.table.identifier), ask)


def _refusing(function: Any, *args: Any) -> Any:
    """Any error of a rule ends the read, so that nothing is shown that the rule might hide."""
    try:
        return function(*args)
    except (ValueError, KeyError, TypeError, RuntimeError, pa.ArrowException) as error:
        raise UnsupportedTableError(
            f"The catalog's rules for reading this table cannot be enforced: {error}"
        ) from error


def _bound(result: TableQueryAuthResult, layout: ReadLayout, latest: Sequence[DataField]) -> Rules:
    result.validate_against_schema(list(latest))
    result.validate_readable_without_rename(list(latest), list(layout.schema.fields))
    read = {field.name for field in layout.fields}
    masks = {column: rule for column, rule in (result.column_masking or {}).items() if column in read}
    tested = masks.keys() & {name.split(".")[0] for name in layout.filtered_columns}
    if tested:
        raise ValueError(f"the filter uses {', '.join(sorted(tested))}, which is masked")
    result = type(result)(result.filter, masks)
    needed = result.rule_field_names()
    unknown = needed - {field.name for field in layout.schema.fields}
    if unknown:
        raise ValueError(f"they use {', '.join(sorted(unknown))}, which is not a column of this table")
    blobs = {field.name for field in layout.schema.fields if holds_blobs(field.type)}
    if needed & blobs:
        raise ValueError(f"they use {', '.join(sorted(needed & blobs))}, whose blobs are fetched last")
    return Rules(result, frozenset(result.filter_field_names()), frozenset(needed))
