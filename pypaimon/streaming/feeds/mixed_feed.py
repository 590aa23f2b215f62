"""`MixedFeed`: batches of several tables in one pass, drawn by weights."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Literal

from torch.utils.data import IterableDataset

from pypaimon.streaming.errors import StreamConfigError
from pypaimon.streaming.feeds.feed_state import check_unaltered, with_checksum
from pypaimon.streaming.feeds.torch_feed import TorchFeed, check_epoch, load_states, refuse_batches_of_batches, share_of
from pypaimon.streaming.options.arguments import at_least, typed

_VERSION = 1


class MixedFeed(IterableDataset[Any]):
    """Batches of several feeds in one pass, for `DataLoader(mixed, batch_size=None, num_workers=4)` (extra `torch`).

    A batch has rows of one feed. Which feed gives the next one is drawn by the weights, and depends on the seed, the
    epoch, the worker and the number of the draw only: a pass is the same each time, and `state_dict()` resumes it
    exactly. Each worker reads its share of every feed, and ends by itself.

    Args:
        feeds: The feeds, each with an end. Of a mapping each batch comes as `(name, batch)`, of a sequence as it is.
        weights: How often each feed is drawn, compared with the others; in the form of `feeds`. None: all alike.
        seed: Another seed draws in another order; `set_epoch` does too.
        stop: `"all"`: a feed that has ended is left out of the draws, until all have ended, so that every row comes
            once. `"first"`: the pass ends when a feed is drawn that has ended; the other rows of that worker are left
            out.

    Raises:
        StreamConfigError: Invalid argument; a feed has no end, or not the rank of the others.
    """

    def __init__(
        self,
        feeds: Mapping[str, TorchFeed] | Sequence[TorchFeed],
        weights: Mapping[str, float] | Sequence[float] | None = None,
        *,
        seed: int = 0,
        stop: Literal["all", "first"] = "all",
    ) -> None:
        self._is_named = isinstance(feeds, Mapping)
        self._feeds = _by_name(feeds)
        self._weights = _weights_of(self._feeds, _by_name({} if weights is None else weights))
        self._seed = typed(int, "MixedFeed: seed", seed)
        if stop not in ("all", "first"):
            raise StreamConfigError(f"MixedFeed: stop={stop!r}: choose 'all' or 'first'")
        self._stop = stop
        self._epoch = 0
        self._loaded: tuple[int, tuple[str, ...]] | None = None
        self._pass: _Pass | None = None
        _check_feeds(self._feeds)

    def set_epoch(self, epoch: int) -> None:
        """Have the next `iter()` draw in another order; feeds that shuffle do so in another order, too.

        Raises:
            StreamConfigError: A loaded state is of another epoch.
        """
        at_least(0, "MixedFeed: epoch", epoch)
        if self._loaded is not None:
            check_epoch("MixedFeed", self._epoch, epoch)
        for feed in self._feeds.values():
            if feed.shuffles:
                feed.set_epoch(epoch)
        self._epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        refuse_batches_of_batches("MixedFeed", sys._getframe(1))
        (drawn, ended), self._loaded = self._loaded or (0, ()), None
        worker = share_of(next(iter(self._feeds.values()))).index
        batches = {name: iter(feed) for name, feed in self._feeds.items()}
        draw = _Draw(self._weights, f"{self._seed} {self._epoch} {worker}")
        self._pass = _Pass(batches, draw, drawn, ended, self._epoch, self._stop == "first", self._is_named)
        return self._pass

    def state_dict(self) -> dict[str, Any]:
        """The state after the batch that was handed out last, of this process, as values for JSON."""
        (drawn, ended), epoch = self._loaded or (0, ()), self._epoch
        if self._loaded is None and self._pass is not None:
            # `set_epoch` may have been called for the next pass.
            drawn, ended, epoch = self._pass.drawn, self._pass.ended, self._pass.epoch
        return with_checksum(
            {
                "version": _VERSION,
                "feeds": {name: feed.state_dict() for name, feed in self._feeds.items()},
                "settings": self._settings,
                "epoch": epoch,
                "drawn": drawn,
                "ended": list(ended),
            }
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter()` continue from a state.

        Raises:
            StreamConfigError: The state is invalid, or belongs to other feeds, weights or another number of workers.
            TableChangedError: The state belongs to another table.
        """
        try:
            feeds, settings, version = dict(state["feeds"]), state["settings"], state["version"]
            loaded = int(state["drawn"]), tuple(map(str, state["ended"]))
            epoch = state["epoch"]
        except (KeyError, TypeError, ValueError) as error:
            raise StreamConfigError(
                f"Invalid state of a MixedFeed: {state!r}. Expected a result of state_dict()."
            ) from error
        if version != _VERSION:
            raise StreamConfigError(
                f"The state of the MixedFeed has version {version!r}, but this release reads version {_VERSION}. Use "
                "the release that wrote it, or a newer one."
            )
        if settings != self._settings:
            raise StreamConfigError(
                f"The state belongs to a MixedFeed with other settings: {settings}, now {self._settings}. Use the "
                "settings of the state, or start again without it."
            )
        at_least(0, "MixedFeed: epoch", epoch)
        check_unaltered("MixedFeed", state)
        load_states(self._feeds, feeds)
        self._epoch, self._loaded = epoch, loaded

    @property
    def _settings(self) -> dict[str, Any]:
        return {"weights": dict(self._weights), "seed": self._seed, "stop": self._stop}

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the open readers, which cannot be pickled."""
        return self.__dict__ | {"_pass": None}


class _Draw:
    def __init__(self, weights: Mapping[str, float], seed: str) -> None:
        self._weights = weights
        self._seed = seed

    def __call__(self, number: int, without: Sequence[str]) -> str:
        """A name. Every draw has random numbers of its own, so that a state needs their number only."""
        names = [name for name in self._weights if name not in without]
        (name,) = Random(f"{self._seed} {number}").choices(names, [self._weights[each] for each in names])
        return name


class _Pass(Iterator[Any]):
    def __init__(
        self,
        batches: Mapping[str, Iterator[Any]],
        draw: _Draw,
        drawn: int,
        ended: tuple[str, ...],
        epoch: int,
        ends_with_first: bool,
        is_named: bool,
    ) -> None:
        self._batches = batches
        self._draw = draw
        self._ends_with_first = ends_with_first
        self._is_named = is_named
        self.drawn = drawn
        self.ended = ended
        self.epoch = epoch

    def __next__(self) -> Any:
        while len(self.ended) < (1 if self._ends_with_first else len(self._batches)):
            name = self._draw(self.drawn, self.ended)
            try:
                batch = next(self._batches[name])
            except StopIteration:
                self.ended = (*self.ended, name)
                continue
            self.drawn += 1
            return (name, batch) if self._is_named else batch
        raise StopIteration


def _by_name(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise StreamConfigError(f"MixedFeed({given!r}): give a mapping or a sequence of feeds, and weights as these")
    return {str(number): each for number, each in enumerate(given)}


def _weights_of(feeds: Mapping[str, TorchFeed], given: Mapping[str, Any]) -> dict[str, float]:
    if not given:
        return dict.fromkeys(feeds, 1.0)
    if given.keys() != feeds.keys():
        raise StreamConfigError(f"MixedFeed: weights are for {list(given)}, and feeds are {list(feeds)}")
    for name, weight in given.items():
        is_number = isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if not is_number or not 0 < weight < math.inf:
            raise StreamConfigError(f"MixedFeed: the weight of {name!r} must be a number above 0, got {weight!r}")
    return {name: float(given[name]) for name in feeds}


def _check_feeds(feeds: Mapping[str, TorchFeed]) -> None:
    if not feeds:
        raise StreamConfigError("MixedFeed: give at least one feed")
    for name, feed in feeds.items():
        typed(str, "MixedFeed: the name of a feed", name)
        if typed(TorchFeed, f"MixedFeed: feed {name!r}", feed).end is None:
            raise StreamConfigError(
                f"MixedFeed: feed {name!r} has no end, or one that does not exist yet, and others would wait for it: "
                "give its builder with_end(latest=True)"
            )
    if len({id(feed) for feed in feeds.values()}) < len(feeds):
        raise StreamConfigError("MixedFeed: a feed is given twice; make another one, or give it a greater weight")
    shares = {name: share_of(feed) for name, feed in feeds.items()}
    if len(set(shares.values())) > 1:
        ranks = ", ".join(f"{name!r} is {share.index} of {share.count}" for name, share in shares.items())
        raise StreamConfigError(
            f"MixedFeed: feeds have different ranks: {ranks}; give all the same rank and world_size"
        )
