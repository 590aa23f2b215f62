"""`check_owners`: refuses a batch in which two tasks wrote one key, because chance would decide which row is newer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pypaimon.streaming.errors import PaimonStreamError
from pypaimon.streaming.files.data_files import read_file
from pypaimon.streaming.merge.engines.factory import merge_engine
from pypaimon.streaming.metadata.paimon_table import PaimonTable
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.internals import DataFileMeta
from pypaimon.streaming.paimon.write_internals import CommitMessage

_BATCH_SIZE = 65536


class KeyOwnersError(PaimonStreamError):
    """Two tasks wrote rows of the same primary key; nothing was committed."""


def check_owners(table: PaimonTable, tasks: Sequence[Sequence[CommitMessage]]) -> None:
    """Refuse a batch in which two tasks wrote the same key. Reads the keys of buckets that several tasks wrote.

    Tasks number their rows independently, so Paimon cannot know which of two rows is the newer one without a
    `sequence.field`. `repartition_by_bucket` gives each bucket to one task, and then nothing is read.

    Args:
        tasks: Its commit messages, by task.

    Raises:
        KeyOwnersError: A key came from two tasks.
    """
    if not table.is_primary_key_table or option_keys.SEQUENCE_FIELD.set_as(table.options):
        return
    if not merge_engine(table.schema).depends_on_order:
        return
    buckets: dict[tuple[Any, ...], dict[int, list[DataFileMeta]]] = {}
    for number, messages in enumerate(tasks):
        for message in messages:
            owners = buckets.setdefault((tuple(message.partition), message.bucket), {})
            owners.setdefault(number, []).extend(message.new_files)
    for (_, bucket), owners in buckets.items():
        if len(owners) > 1:
            _check_bucket(table, bucket, owners)


def _check_bucket(table: PaimonTable, bucket: int, owners: dict[int, list[DataFileMeta]]) -> None:
    directory, fields = table.new_directory(), table.key_fields
    keys = [
        pa.Table.from_batches([batch]).append_column("_task", pa.repeat(pa.scalar(number), batch.num_rows))
        for number, files in owners.items()
        for file in files
        for batch in read_file(
            directory, file, fields, schema_id=table.schema.id, system_columns=(), batch_size=_BATCH_SIZE
        )
    ]
    names = [field.name for field in fields]
    owned = pa.concat_tables(keys).group_by(names).aggregate([("_task", "min"), ("_task", "max")])
    shared = owned.filter(pc.not_equal(owned["_task_min"], owned["_task_max"]))
    if shared.num_rows:
        key = {name: shared[name][0].as_py() for name in names}
        raise KeyOwnersError(
            f"{shared.num_rows} keys, such as {key}, came from more than one task, so that chance would decide which "
            "row is the newer one. Give the rows of a key to one task, in their order: "
            "pypaimon.spark.repartition_by_bucket(df, options). Or let a column decide: set 'sequence.field'."
        )
