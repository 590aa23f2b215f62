"""A query in a process of its own, for tests that kill it: `python spark_killed_query.py <settings as JSON>`.

Writes each row of each batch to a file of the batch, replaced as a whole, as an idempotent sink does. A task holds
where the settings say so, after a part of its batch has been written, until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from support.spark.session import new_session


def main(settings: dict[str, Any]) -> None:
    spark = new_session(Path(settings["session"]))
    output, hold = Path(settings["output"]), settings["hold_in_batch"]

    def write(batch: Any, batch_id: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        draft = output / f"draft-{os.getpid()}"
        draft.write_text(json.dumps(rows))
        if batch_id == hold:
            print("holding", flush=True)
            signal.pause()  # Until the test kills this process.
        draft.replace(output / f"batch-{batch_id}.json")

    stream = spark.readStream.format("pypaimon").options(**settings["options"]).load()
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", settings["checkpoint"])
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
