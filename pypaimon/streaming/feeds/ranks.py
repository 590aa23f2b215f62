"""`equal_batches`: as many batches on each rank of a job, so that no rank waits for others at the end of an epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeVar

import torch
import torch.distributed

from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError

T = TypeVar("T")
_END: Any = object()
_FAILED, _ENDED, _HAS_BATCH = range(3)


def equal_batches(loader: Iterable[T], *, at_end: Literal["drop", "repeat"] = "drop") -> Iterator[T]:
    """The batches of a loader, as many on each rank of `torch.distributed` (extra `torch`).

    Ranks read different shares of a table, and how many batches these are is known only once they are read. So before
    each batch the ranks report whether they have one, which takes one small message (over gloo, next to the process
    group of the job). An error of one rank ends the loops of all. All ranks make the same call.

    Args:
        loader: Such as `DataLoader(feed, batch_size=None)`; the workers of each rank may have any number.
        at_end: What happens when a rank has no more batches. `"drop"`: the loop ends on all ranks, and the remaining
            batches of the others are left out of this epoch. `"repeat"`: ranks without more batches repeat theirs from
            the first one on, until every rank has given all of its own, so that no row is left out.

    Raises:
        StreamConfigError: `torch.distributed` is not initialised, `at_end` is unknown, or a rank has no rows to
            repeat.
        PaimonStreamError: Another rank has failed.
    """
    if at_end not in ("drop", "repeat"):
        raise StreamConfigError(f"equal_batches: at_end={at_end!r}: choose 'drop' or 'repeat'")
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        raise StreamConfigError(
            "equal_batches: ranks report through torch.distributed whether they have a batch: initialise it first, "
            "or, with one process, use the loader itself."
        )
    return _in_step(loader, at_end == "repeat", _group())


def _in_step(loader: Iterable[T], repeats: bool, group: Any) -> Iterator[T]:
    batches, has_ended = iter(loader), False
    while True:
        batch, error = _END, None
        try:
            batch = next(batches, _END)
            if batch is _END:
                has_ended = True
                if repeats:
                    batches = iter(loader)
                    batch = next(batches, _END)
                    if batch is _END:
                        rank = torch.distributed.get_rank()
                        raise StreamConfigError(
                            f"equal_batches: rank {rank} has no rows to repeat: use fewer ranks, or at_end='drop'"
                        )
        except Exception as failed:  # noqa: BLE001 - raised below, once the others know
            error = failed
        mine = _FAILED if error is not None else _ENDED if batch is _END else _HAS_BATCH
        # On the CPU, because the group is gloo's, whatever device the job makes tensors on.
        least = torch.tensor([mine, int(has_ended)], device="cpu")
        torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN, group)
        all_have, all_ended = least.tolist()
        if error is not None:
            raise error
        if all_have == _FAILED:
            raise PaimonStreamError("equal_batches: another rank has failed; its own error says why")
        if all_have == _ENDED or all_ended:
            return
        yield batch


_made: tuple[Any, Any] | None = None


def _group() -> Any:
    """The group of the job if it is gloo's, else one of gloo, made once: messages of NCCL would wait for the GPU."""
    global _made
    world = torch.distributed.group.WORLD
    if _made is None or _made[0] is not world:
        is_gloo = torch.distributed.get_backend() == "gloo"
        _made = world, world if is_gloo else torch.distributed.new_group(backend="gloo")
    return _made[1]
