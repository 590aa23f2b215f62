"""Each change of a table as an HTTP POST, at least once, with a key by which the receiver knows what it has already.

    python examples/changes_to_webhook.py /path/to/warehouse db.orders https://example.com/hook

The body is `{"kind": "+U", "row": {...}, "snapshot": 7}`. The header `Idempotency-Key` is the same each time a change
is sent: after a crash those of an unfinished snapshot come again. Only a 2xx counts as received. Refused connections,
408, 425, 429 and 5xx are tried again, without limit, after growing pauses; any other answer ends the program with the
row. Progress is saved under the consumer id `webhook`, whose snapshots do not expire.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sys
import urllib.error
import urllib.request

from pypaimon import CatalogFactory

from pypaimon.streaming import BlockingBatch, run_forever, stream_read_builder
from pypaimon.streaming.errors import PaimonStreamError

AGAIN = (408, 425, 429)
SECONDS = 30.0


class NotReceived(PaimonStreamError):
    """The receiver cannot be reached, or asks to try again: `run_forever` calls the handler with the batch again."""

    retriable = True


class Webhook:
    """A handler for `run_forever`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._plan = ""
        self._before = self._sent = 0
        """Rows of the plan before the batch, and rows that were received."""

    def __call__(self, batch: BlockingBatch) -> None:
        plan = batch.plan_after.to_json()
        if plan != self._plan:
            self._plan, self._before, self._sent = plan, 0, 0
        # The rows of a plan are the same each time, in the same order, however they are cut into batches.
        rows = zip(batch.kinds.to_pylist(), batch.rows.to_pylist(), strict=True)
        for number, (kind, row) in enumerate(rows, start=self._before):
            if number < self._sent:
                continue  # received before the handler was called again
            key = hashlib.sha256(f"{plan} {number}".encode()).hexdigest()
            self._post(key, json.dumps({"kind": kind, "row": row, "snapshot": batch.snapshot_id}, default=str))
            self._sent = number + 1
        self._before += batch.num_rows

    def _post(self, key: str, body: str) -> None:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        request = urllib.request.Request(self._address, body.encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=SECONDS):
                return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code in AGAIN or error.code >= 500:
                raise NotReceived(f"{self._address}: {error}") from error
            raise RuntimeError(f"{self._address} refuses {body}: {error}") from error
        except OSError as error:
            raise NotReceived(f"{self._address}: {error}") from error


def main(warehouse: str, table: str, address: str) -> None:
    """Send for ever, until SIGTERM."""
    logging.basicConfig(level=logging.INFO)
    source = CatalogFactory.create({"warehouse": warehouse}).get_table(table)
    builder = stream_read_builder(source).with_consumer_id("webhook")
    with builder.open_sync() as stream:
        run_forever(stream, Webhook(address), attempts=1)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) == 4 else sys.exit(__doc__)
