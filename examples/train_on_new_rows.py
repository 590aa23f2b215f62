"""A model that is trained on new rows of a table, run after run, and resumes where it was killed.

    python examples/train_on_new_rows.py /path/to/warehouse db.points model.pt

A linear model learns `y` of `x`, two columns of the table. Each run reads the commits since the last one ended. The
model, its optimizer and its position are one file, which is replaced as a whole: every row is learned once, wherever a
run is killed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

# Before the imports, which need an extra.
if __name__ == "__main__" and len(sys.argv) <= 3:
    sys.exit(__doc__)

import torch
from pypaimon import CatalogFactory
from torchdata.stateful_dataloader import StatefulDataLoader

from pypaimon.streaming import StreamReadBuilder, stream_read_builder
from pypaimon.streaming.feeds import TorchFeed

BATCHES_OF_A_CHECKPOINT = 20


class Training:
    """A model in training, and its checkpoint.

    Args:
        checkpoint: The file; a new training if there is none.
    """

    def __init__(self, checkpoint: Path) -> None:
        self._checkpoint = checkpoint
        self.model = torch.nn.Linear(1, 1)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.rows = 0
        self.start: str | None = None
        self.loader: dict[str, Any] = {}
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self._optimizer.load_state_dict(saved["optimizer"])
            self.rows, self.start, self.loader = saved["rows"], saved["start"], saved["loader"]

    def learn(self, batch: dict[str, torch.Tensor]) -> None:
        """One step."""
        x, y = (batch[name].float().unsqueeze(1) for name in ("x", "y"))
        self._optimizer.zero_grad()
        torch.nn.functional.mse_loss(self.model(x), y).backward()
        self._optimizer.step()
        self.rows += len(x)

    def save(self, start: str, loader: dict[str, Any]) -> None:
        """Replace the checkpoint.

        Args:
            start: Where this pass began, or, without a state of its loader, where the next one begins.
            loader: State of the loader of this pass; empty: the pass has ended.
        """
        state = {"model": self.model.state_dict(), "optimizer": self._optimizer.state_dict()}
        replacement = self._checkpoint.with_suffix(".new")
        torch.save({**state, "rows": self.rows, "start": start, "loader": loader}, replacement)
        os.replace(replacement, self._checkpoint)


def train(builder: StreamReadBuilder, checkpoint: Path, workers: int = 2) -> Training:
    """Learn what is new, up to the latest snapshot."""
    training = Training(checkpoint)
    builder = builder.copy().with_projection(["x", "y"]).with_end(latest=True)
    if training.start is not None:
        builder.with_start(position=training.start)
    feed = TorchFeed(builder, batch_rows=64, full_batches=True)
    loader: Any = StatefulDataLoader(feed, batch_size=None, num_workers=workers)
    # An empty state begins at the start.
    loader.load_state_dict(training.loader)
    for number, batch in enumerate(loader, 1):
        training.learn(batch)
        if number % BATCHES_OF_A_CHECKPOINT == 0:
            training.save(feed.start.to_json(), loader.state_dict())
    assert feed.end is not None
    training.save(feed.end.to_json(), {})
    return training


def main(warehouse: str, table: str, checkpoint: str) -> None:
    """Train, and say what was learned."""
    catalog = CatalogFactory.create({"warehouse": warehouse})
    training = train(stream_read_builder(catalog.get_table(table)), Path(checkpoint))
    weight, bias = (value.item() for value in training.model.parameters())
    print(f"after {training.rows} rows: y = {weight:.2f} x + {bias:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
