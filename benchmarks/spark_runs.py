"""Queries of Spark and what they cost: time on the clock, and processor time of all processes together."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.other_load import own_seconds

sys.path.insert(0, str(Path(__file__).parent.parent / "pypaimon" / "tests"))
from support.spark.session import new_session as new_session

ROUNDS = 5


def noop(frame: Any) -> None:
    """Read all of a frame."""
    frame.write.format("noop").mode("overwrite").save()


def run(stream: Any, directory: Path, each: Callable[[Any, int], None] | None = None) -> Any:
    """A query to its end, with a checkpoint of its own; into `each`, or into nothing."""
    writer = stream.writeStream.option("checkpointLocation", tempfile.mkdtemp(dir=directory))
    writer = writer.format("noop") if each is None else writer.foreachBatch(each)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def add_batch_seconds(stream: Any, directory: Path, each: Callable[[Any, int], None] | None = None) -> float:
    """Seconds that a query reads and writes, without start and planning."""
    return sum(done.durationMs.get("addBatch", 0) for done in run(stream, directory, each).recentProgress) / 1000


def batch_millis(stream: Any, directory: Path, skipped: int) -> float:
    """The median of a micro-batch, but for the first ones."""
    progress = [done for done in run(stream, directory).recentProgress if done.numInputRows]
    return float(median(done.durationMs["triggerExecution"] for done in progress[skipped:]))


def clock_seconds(call: Callable[[], object]) -> float:
    """How long a call takes by the clock: several processes work on it."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def processor_seconds(call: Callable[[], object]) -> float:
    """Processor time of a call, of this process and all below it: those of Spark, also of those that have ended."""
    begin = own_seconds()
    call()
    return own_seconds() - begin


def in_turns(candidates: Mapping[str, Callable[[], float]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """What each candidate measures in several rounds, in each of which all take their turn; one more is not counted."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    for number in range(rounds + 1):
        for name, measure in candidates.items():
            value = measure()
            if number:
                found[name].append(value)
    return found


def share(found: dict[str, list[float]], name: str, peer: str) -> float:
    """How many times as long the peer takes: the median over rounds."""
    return median(b / a for a, b in zip(found[name], found[peer], strict=True))
