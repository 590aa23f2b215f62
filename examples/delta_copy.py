"""A service that keeps a Delta table equal to a Paimon table, exactly once, and compacts it now and then.

    python examples/delta_copy.py /path/to/warehouse db.orders s3://lake/orders id

It needs the extra `delta`. Each plan is a commit, so a table that changes often gets many small files. The program
compacts them itself after every `COMPACT_EVERY` commits, so that commits and compactions never conflict.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

# Before the imports, which need an extra.
if __name__ == "__main__" and len(sys.argv) <= 3:
    sys.exit(__doc__)

from deltalake import DeltaTable
from pypaimon import CatalogFactory

from pypaimon.streaming import Batch, BlockingBatch, DeltaTarget, Position, replicate, stream_read_builder

COMPACT_EVERY = 100


class CompactedDelta:
    """A target that compacts its table after some commits.

    Args:
        uri: Of the table.
        keys: Columns of the key; none: rows are appended.
        storage_options: As deltalake takes them.
    """

    def __init__(self, uri: str, keys: Sequence[str], storage_options: Mapping[str, str]) -> None:
        self._uri = uri
        self._options = dict(storage_options)
        self._target = DeltaTarget(uri, keys, storage_options=storage_options)
        self._commits = 0

    def load_position(self) -> Position | None:
        """Where to continue."""
        return self._target.load_position()

    def apply(self, batch: Batch | BlockingBatch) -> None:
        """Apply a batch; between two plans nobody else is at the table."""
        self._target.apply(batch)
        self._commits += batch.is_last
        if batch.is_last and self._commits % COMPACT_EVERY == 0:
            DeltaTable(self._uri, storage_options=self._options).optimize.compact()


def main(warehouse: str, table: str, uri: str, *keys: str) -> None:
    """Copy for ever."""
    source = CatalogFactory.create({"warehouse": warehouse}).get_table(table)
    # Snapshots that are not copied yet do not expire.
    builder = stream_read_builder(source).with_consumer_id("delta").with_poll_interval_ms(10_000)
    options = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    replicate(builder, CompactedDelta(uri, keys, options))


if __name__ == "__main__":
    main(*sys.argv[1:])
