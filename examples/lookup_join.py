"""Changes of one table joined with the rows of another one, which is kept live in memory.

    python examples/lookup_join.py /path/to/warehouse db.events user db.users

Prints each change of the first table with the columns of the second one for the value of its column `user`, null
without a match. The second table is at least as new as it was when the change was read, so a row that was committed
before the change is found.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import pyarrow as pa
from pypaimon import CatalogFactory

from pypaimon.streaming import LiveTable, StreamReadBuilder, stream_read_builder


async def joined(changes: StreamReadBuilder, column: str, dimension: StreamReadBuilder) -> AsyncIterator[pa.Table]:
    """The batches of a stream with the columns of a live table, whose names begin with `dimension_`.

    Args:
        changes: The stream.
        column: Its column that holds keys of the dimension.
        dimension: A table whose primary key is one column.
    """
    async with dimension.open_live() as live, changes.open() as stream:
        async for batch in stream:
            await up_to_date(live, dimension)
            found = live.get_many(batch.rows[column])
            rows = batch.data
            for name in found.schema.names:
                rows = rows.append_column(f"dimension_{name}", found[name])
            yield rows


async def up_to_date(live: LiveTable, dimension: StreamReadBuilder) -> None:
    """Wait for the latest snapshot of the dimension; of one whose changes compactions make, for the next of those."""
    snapshots = dimension.table.snapshot_manager()
    latest = await asyncio.to_thread(snapshots.get_latest_snapshot)
    if latest is not None:
        await live.wait_for(latest.id)


async def main(warehouse: str, changes: str, column: str, dimension: str) -> None:
    """Print the joined rows, and follow both tables."""
    catalog = CatalogFactory.create({"warehouse": warehouse})
    builders = [stream_read_builder(catalog.get_table(name)) for name in (changes, dimension)]
    async for rows in joined(builders[0], column, builders[1]):
        for row in rows.to_pylist():
            print(row)


if __name__ == "__main__":
    if len(sys.argv) <= 4:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:5]))
