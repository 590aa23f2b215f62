"""New rows of a table through Ray Data, run after run: exactly once, wherever a run is killed.

    python examples/ray_new_rows.py /path/to/warehouse db.points scores

Each run reads the commits since the last one ended, plan by plan. For each plan Ray computes a column and writes a
folder of Parquet files, which appears as a whole under the number of the plan's snapshot, together with the position
after it. A run that begins there gets each row once. The first plan is the state of the table.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

# Before the imports, which need an extra.
if __name__ == "__main__" and len(sys.argv) <= 3:
    sys.exit(__doc__)

import pyarrow as pa
import pyarrow.compute as pc
from pypaimon import CatalogFactory

from pypaimon.streaming import Position, StreamReadBuilder, stream_read_builder
from pypaimon.streaming.feeds import RayFeed

_POSITION = "_position.json"


def scored(rows: pa.Table) -> pa.Table:
    """What a model would do with a batch."""
    return rows.append_column("score", pc.multiply(rows["x"], 2.0))


def newest(folder: Path) -> Path | None:
    """What the last plan became."""
    return max(folder.glob("[0-9]*"), default=None, key=lambda path: int(path.name))


def score_new_rows(builder: StreamReadBuilder, folder: Path) -> None:
    """Bring a folder up to the latest snapshot of a table."""
    folder.mkdir(parents=True, exist_ok=True)
    builder = builder.copy().with_end(latest=True)
    done = newest(folder)
    if done is not None:
        builder.with_start(position=(done / _POSITION).read_text())

    def keep(dataset: Any, position: Position) -> None:
        begun = folder / "begun"
        shutil.rmtree(begun, ignore_errors=True)
        dataset.map_batches(scored, batch_format="pyarrow").write_parquet(str(begun))
        (begun / _POSITION).write_text(position.to_json())
        os.replace(begun, folder / str(position.snapshot))

    RayFeed(builder).for_each(keep)


def main(warehouse: str, table: str, folder: str) -> None:
    """Score what is new, and say up to where."""
    catalog = CatalogFactory.create({"warehouse": warehouse})
    score_new_rows(stream_read_builder(catalog.get_table(table)), Path(folder))
    print(f"up to {newest(Path(folder))}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
