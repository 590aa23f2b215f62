"""A service that keeps a table of PostgreSQL equal to a Paimon table, exactly once, for as long as it runs.

    python examples/postgres_copy.py /path/to/warehouse db.orders postgresql://localhost/shop sales.orders id

It needs the extra `postgres`. Errors of the database, such as a lost connection, are retried with a new connection
after growing pauses. Errors that need a person end the service.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Sequence

# Before the imports, which need an extra.
if __name__ == "__main__" and len(sys.argv) <= 4:
    sys.exit(__doc__)

import adbc_driver_postgresql.dbapi
from pypaimon import CatalogFactory

from pypaimon.streaming import PostgresTarget, StreamReadBuilder, replicate, stream_read_builder
from pypaimon.streaming.errors import TargetError

LONGEST_PAUSE = 60.0


def copy(builder: StreamReadBuilder, address: str, name: str, keys: Sequence[str]) -> None:
    """Go on where the table of PostgreSQL stands, up to the end of the builder, if that has one."""
    with adbc_driver_postgresql.dbapi.connect(address) as connection:
        replicate(builder, PostgresTarget(connection, name, keys))


def serve(attempt: Callable[[], None], sleep: Callable[[float], None] = time.sleep) -> None:
    """Repeat attempts until one succeeds.

    Args:
        attempt: Copies; errors of its connection are the driver's, or `TargetError`.
        sleep: Waits for this many seconds.
    """
    pause = 1.0
    while True:
        begun = time.monotonic()
        try:
            return attempt()
        except (TargetError, adbc_driver_postgresql.dbapi.Error) as error:
            logging.warning("trying again in %.0f s: %s", pause, error)
        sleep(pause)
        pause = 1.0 if time.monotonic() - begun > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)


def main(warehouse: str, table: str, address: str, name: str, *keys: str) -> None:
    """Copy for ever."""
    source = CatalogFactory.create({"warehouse": warehouse}).get_table(table)
    # Snapshots that are not copied yet do not expire.
    builder = stream_read_builder(source).with_consumer_id(f"postgres-{name}").with_on_schema_change("follow")
    serve(lambda: copy(builder, address, name, keys))


if __name__ == "__main__":
    main(*sys.argv[1:])
