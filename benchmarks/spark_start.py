"""What it costs to begin a query: as the first of a session, and as a later one.

As a program: processor seconds of the first query, `python -m benchmarks.spark_start SOURCE WAREHOUSE DIRECTORY`.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import spark_ceilings
from benchmarks.spark_runs import new_session, processor_seconds, run

SOURCES = ("pypaimon", "bare", "files")


def small_stream(spark: Any, source: str, warehouse: Path, directory: Path) -> Callable[[], Any]:
    """What loads a stream of all rows of the table `db.small`, by one of `SOURCES`; `files` is Spark's own."""
    options = {"warehouse": str(warehouse), "table": "db.small", "start": "earliest"}
    if source == "bare":
        return spark_ceilings.bare(spark, options, directory, streaming=True)
    if source == "files":
        return files_stream(spark, warehouse / "db.db" / "small")
    return lambda: spark.readStream.format(source).options(**options).load()


def files_stream(spark: Any, table: Path, **options: Any) -> Callable[[], Any]:
    """What loads the files of an unpartitioned append table by Spark's own source, which does not ask for a schema."""
    files = str(table / "bucket-0")
    schema = spark.read.parquet(files).schema
    return lambda: spark.readStream.schema(schema).options(**options).parquet(files)


def first_query(source: str, warehouse: Path, directory: Path) -> float:
    """Processor seconds of the first query of a session, in processes of its own."""
    arguments = [sys.executable, "-m", "benchmarks.spark_start", source, str(warehouse), str(directory)]
    shown = subprocess.run(arguments, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
    return float(shown.stdout.splitlines()[-1])


def main() -> None:
    """Print them."""
    logging.disable(logging.WARNING)
    source, warehouse, directory = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    directory.mkdir()
    spark = new_session(directory / "spark", quick=False)
    spark_ceilings.register(spark)
    load = small_stream(spark, source, warehouse, directory)
    sys.stdout.write(f"{processor_seconds(lambda: run(load(), directory))}\n")
    jvm = spark.sparkContext._gateway
    spark.stop()
    jvm.shutdown()
    jvm.proc.stdin.close()
    # Its processor time counts as ours only if it ends before this process does.
    jvm.proc.wait()


if __name__ == "__main__":
    main()
