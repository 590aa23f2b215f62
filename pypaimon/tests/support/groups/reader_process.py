"""A process that reads a table as a member of a group: `reader_process.py SETTINGS`, a JSON object.

Each batch is a line of JSON, written before it is confirmed, and another line says what became of that. It ends when
its input is closed.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from pypaimon import CatalogFactory

from pypaimon.streaming import stream_read_builder
from pypaimon.streaming.errors import AssignmentLostError


def main(settings: dict[str, Any]) -> None:
    """Be a member until the input is closed."""
    table = CatalogFactory.create(settings["catalog"]).get_table(settings["table"])
    builder = stream_read_builder(table).with_poll_interval_ms(settings["poll_ms"]).with_limits(max_rows=40)
    group = builder.new_group("etl", member=settings["member"], session_timeout=settings["session"], commit="manual")
    with group.open_sync() as stream:
        threading.Thread(target=lambda: (sys.stdin.read(), stream.stop()), daemon=True).start()
        for batch in stream:
            report(tokens=batch.tokens, keys=batch.rows["k"].to_pylist(), whole=batch.is_last)
            try:
                batch.commit()
                report(done=batch.is_last)
            except AssignmentLostError as error:
                report(done=batch.is_last, lost=error.slots)


def report(**line: Any) -> None:
    """Print a line for the test."""
    if "tokens" in line:
        line["tokens"] = dict(line["tokens"])
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
