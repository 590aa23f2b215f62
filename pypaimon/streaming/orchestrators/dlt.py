"""For dlt: a resource with the changes of a table, and a destination that writes into tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pypaimon.streaming.catalog_access import open_table
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError
from pypaimon.streaming.lazy_imports import naming_extra
from pypaimon.streaming.read_builder import StreamReadBuilder
from pypaimon.streaming.writing.builder import stream_write_builder

with naming_extra(__name__, {"dlt": "dlt"}):
    import dlt
    from dlt.destinations.exceptions import DestinationTerminalException, DestinationTransientException

DELETED, ORDER = "_deleted", "_order"
_FILES, _LOAD = "dlt.files", "dlt.load"
_MERGED = {
    DELETED: {"data_type": "bool", "hard_delete": True},
    ORDER: {"data_type": "bigint", "dedup_sort": "desc"},
}


def changes(builder: StreamReadBuilder, name: str, keys: str | Sequence[str] = ()) -> Any:
    """A resource of dlt: the state of a table, and with each later run what was committed since.

    The position is in the state of the resource, which dlt saves together with the rows: a run that fails is
    repeated, and no change is lost.

    Args:
        builder: What to read; each run ends at the latest snapshot.
        name: The name of the resource, and of the table at the destination.
        keys: The primary key: the rows are merged, and deleted ones removed. Without one they are appended, those of a
            table with a primary key with their `_row_kind`, because deleted ones are among them.
    """

    @dlt.resource(  # type: ignore[untyped-decorator, unused-ignore]
        name=name,
        primary_key=keys or None,
        write_disposition="merge" if keys else "append",
        columns=_MERGED if keys else None,
    )
    def resource() -> Iterator[pa.Table]:
        state, count = dlt.current.resource_state(), 0
        stream_builder = builder.copy().with_end("latest")
        if "position" in state:
            stream_builder.with_start(position=state["position"])
        with stream_builder.open_sync() as stream:
            for batch in stream:
                if batch.begins_state and "position" in state:
                    raise StreamConfigError(
                        f"{name}: the stream begins with the state of the table again, which dlt cannot replace within "
                        "a run: drop the resource's state and table with refresh='drop_resources'"
                    )
                rows = batch.rows if keys else batch.data
                if keys:
                    deleted = pc.is_in(batch.kinds, pa.array(["-U", "-D"]))
                    order = pa.array(range(count, count := count + rows.num_rows), pa.int64())
                    rows = rows.append_column(DELETED, deleted).append_column(ORDER, order)
                yield rows
                if batch.is_last:
                    state["position"] = batch.plan_after.to_json()

    return resource


def paimon_destination(options: Mapping[str, str], database: str, commit_user: str | None = None) -> Any:
    """A destination of dlt: each file of a load is one commit into the table of the same name, exactly once.

    The tables exist already. With a primary key rows replace those of the same key, and a column `_row_kind` may have
    `-D`; without one they are appended.

    Args:
        options: Options of the catalog, as `open_table` takes them.
        database: The database of the tables.
        commit_user: Under this name the tables know which files they hold: one for each pipeline. None: `dlt-` and the
            name of the pipeline.
    """

    @dlt.destination(  # type: ignore[untyped-decorator, unused-ignore]
        name="paimon", batch_size=0, loader_file_format="parquet", max_parallel_load_jobs=1,
        loader_parallelism_strategy="sequential",
    )  # fmt: skip
    def paimon(items: str, table: Any) -> None:
        try:
            user = commit_user or f"dlt-{dlt.current.pipeline().pipeline_name}"
            _write(items, open_table(f"{database}.{table['name']}", options), table, user)
        except PaimonStreamError as error:
            kind = DestinationTransientException if error.retriable else DestinationTerminalException
            raise kind(str(error)) from error

    return paimon()


def _write(file: str, table: Any, described: Any, commit_user: str) -> None:
    disposition = described.get("write_disposition")
    if disposition == "replace":
        raise StreamConfigError(
            f"{described['name']}: a load cannot replace a table, because each of its files is a commit: use 'append' "
            "or, with a primary key, 'merge'"
        )
    if disposition == "merge" and not table.primary_keys:
        raise StreamConfigError(
            f"{described['name']}: rows cannot be merged into a table without a primary key: use 'append'"
        )
    # .../LOAD/started_jobs/TABLE.FILE.RETRY.parquet
    path = Path(file)
    load, name = path.parent.parent.name, path.name.split(".")[-3]
    with stream_write_builder(table).with_commit_user(commit_user).open_sync() as writer:
        before = writer.committed_properties
        files = before.get(_FILES, "").split() if before.get(_LOAD) == load else []
        if name in files:
            return
        rows, known = pq.read_table(path), {field.name for field in table.fields}
        # dlt adds columns of its own, which a table may have.
        of_dlt = {name for name in rows.column_names if name.startswith("_dlt_")}
        writer.write(rows.drop_columns([*of_dlt - known]))
        writer.commit(properties={_LOAD: load, _FILES: " ".join([*files, name])})
