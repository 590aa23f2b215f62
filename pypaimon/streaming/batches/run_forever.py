"""`run_forever`: the loop of a service: what may pass is tried again, what cannot be handled is put aside."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.batches.stream import AsyncStream, BlockingStream
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.options.arguments import a_function, at_least, finite_seconds, needed

B = TypeVar("B", bound=Batch | BlockingBatch)
A = TypeVar("A", bound=Batch)
S = TypeVar("S", bound=BlockingBatch)
_LOG = StreamLog(__name__)


def run_forever(
    stream: BlockingStream[Any, S],
    handle: Callable[[S], object],
    *,
    attempts: int = 5,
    dead_letter: Callable[[S, Exception], object] | None = None,
    first_pause: float | timedelta = 1.0,
    longest_pause: float | timedelta = 60.0,
) -> None:
    """Call a handler with every batch of a stream, until the stream ends or is stopped.

    - A retriable error of the stream (`PaimonStreamError.retriable`) is retried without limit, after pauses that
      double, and repeats no row. Any other error is raised.
    - A handler that raises is called again with the same batch, so it must tolerate that. A retriable error, such as a
      locked database of a target, is retried without limit. After `attempts` calls with any other error the batch goes
      to `dead_letter` and the stream continues; without one the error is raised. A `PaimonStreamError` of the handler
      that is not retriable (another reader has taken over the consumer id) is raised at once.
    - SIGTERM calls `stream.stop()`, unless the program has a handler of its own: the rest of the current plan is
      handled, then this returns. A stop ends every pause. In an outage it tries once more and returns; unhandled
      batches come again with the next start.

    Batches are confirmed as the stream's settings say: with `commit="auto"` once the handler, or `dead_letter`, has
    returned and the next batch is requested; with `commit="manual"` by their `batch.commit()`. A batch whose error was
    raised is not confirmed, and comes again with the next start. Each failure is logged (events `waits_out`,
    `handler_failed`, `dead_letter`).

    Args:
        stream: An open stream of `open_sync()`, of a table, a group or a database. It stays open.
        handle: Called with each batch.
        attempts: Calls of the handler with one batch.
        dead_letter: Called with a batch and the last error of the handler; stores the batch, or raises to end the loop.
        first_pause: Pause after one failure; half of it is random.
        longest_pause: Bound of the doubling pauses.

    Raises:
        StreamConfigError: The handler or `dead_letter` is asynchronous, or a setting is invalid.
        PaimonStreamError: The stream failed for good.
    """
    _check_functions("run_forever", handle, dead_letter)
    needed("run_forever: stream", stream, "an open stream, as open_sync() gives it", "__next__", "stop", "pause")
    loop = _Loop(stream, backoff_of(attempts, first_pause, longest_pause), handle, dead_letter)
    with on_sigterm(stream.stop):
        run(loop.steps())


async def run_forever_async(
    stream: AsyncStream[Any, A],
    handle: Callable[[A], Awaitable[object]],
    *,
    attempts: int = 5,
    dead_letter: Callable[[A, Exception], Awaitable[object]] | None = None,
    first_pause: float | timedelta = 1.0,
    longest_pause: float | timedelta = 60.0,
) -> None:
    """As `run_forever`, for a stream of `open()`, with a handler and a `dead_letter` that are awaited.

    If it is cancelled the batch in hand is not confirmed.
    """
    _check_functions("run_forever_async", handle, dead_letter)
    needed("run_forever_async: stream", stream, "an open stream, as open() gives it", "__anext__", "stop", "pause")
    loop = _Loop(stream, backoff_of(attempts, first_pause, longest_pause), handle, dead_letter)
    with on_sigterm(stream.stop):
        await run_async(loop.steps())


def waiting_out(stream: BlockingStream[Any, S]) -> Iterator[S]:
    """The batches of a stream, retriable errors waited out as `run_forever` does it; a loop without its handler."""
    loop: _Loop[S] = _Loop(stream, Backoff(), handle=lambda batch: None)
    while (batch := run(loop.next())) is not None:
        yield batch


def backoff_of(
    attempts: int = 5, first_pause: float | timedelta = 1.0, longest_pause: float | timedelta = 60.0
) -> Backoff:
    """The back-off of a service; see `run_forever`. Only calls of a handler are limited by the attempts.

    Raises:
        StreamConfigError: Invalid argument.
    """
    at_least(1, "run_forever: attempts", attempts)
    first = finite_seconds("run_forever: first_pause", first_pause)
    longest = finite_seconds("run_forever: longest_pause", longest_pause)
    if not first <= longest:
        raise StreamConfigError(f"run_forever: pauses cannot grow from {first:g} to {longest:g} seconds")
    return Backoff(attempts, first, longest)


@dataclass(frozen=True, slots=True)
class _Loop(Generic[B]):
    """Both loops: each wait blocks for a blocking stream, or is awaited for another one.

    Attributes:
        backoff: How often the handler is called with one batch, and how long to pause.
        handle: Called with a batch.
    """

    stream: Any
    backoff: Backoff
    handle: Callable[[B], object]
    dead_letter: Callable[[B, Exception], object] | None = None

    def steps(self) -> Waits[None]:
        while (batch := (yield from self.next())) is not None:
            if not (yield from self._is_handled(batch)):
                return

    def next(self) -> Waits[B | None]:
        """The next batch; None at the end, and where the stream is stopped in an outage."""
        stream = self.stream
        for attempt in itertools.count(1):
            # Read before the call, so that one more attempt is made after a stop.
            was_stopping = stream.is_stopping
            try:
                batch: B | None = yield Wait(lambda: next(stream, None), lambda: anext(stream, None))
                return batch
            except PaimonStreamError as error:
                if not error.retriable:
                    raise
                if was_stopping:
                    return None
                text = "the stream failed (%(error)s) and continues after a pause"
                _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=_words(error))
            yield self._pause(attempt)
        raise AssertionError("unreachable")

    def _is_handled(self, batch: B) -> Waits[bool]:
        """Hand a batch over, again and again; False: it was stopped before that, and the batch comes again."""
        failures = 0
        for attempt in itertools.count(1):
            was_stopping = self.stream.is_stopping
            try:
                yield _calling(self.handle, batch)
                return True
            except PaimonStreamError as error:
                if not error.retriable:
                    raise
                if was_stopping:
                    return False
                text = "the handler waits for what may pass (%(error)s) and is called again after a pause"
                _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=_words(error))
            except Exception as error:  # noqa: BLE001 - the batch may be put aside
                failures += 1
                text = "the handler failed with %(rows)d rows of snapshot %(snapshot)d: %(error)s"
                fields: dict[str, Any] = {"snapshot": batch.snapshot_id, "rows": batch.num_rows, "error": _words(error)}
                _LOG.warning("handler_failed", text, attempt=failures, **fields)
                if failures == self.backoff.attempts or (was_stopping and self.dead_letter is None):
                    yield from self._put_aside(batch, error, fields)
                    return True
                if was_stopping:
                    # It has attempts left, which the next start makes.
                    return False
            yield self._pause(attempt)
        raise AssertionError("unreachable")

    def _put_aside(self, batch: B, error: Exception, fields: dict[str, Any]) -> Waits[None]:
        if self.dead_letter is None:
            raise error
        _LOG.warning("dead_letter", "%(rows)d rows of snapshot %(snapshot)d are put aside: %(error)s", **fields)
        yield _calling(self.dead_letter, batch, error)

    def _pause(self, attempt: int) -> Wait[None]:
        seconds = self.backoff.pause(attempt)
        return Wait(lambda: self.stream.pause(seconds), lambda: self.stream.pause(seconds))


def _calling(function: Callable[..., object], *arguments: object) -> Wait[object]:
    return Wait(lambda: _not_awaitable(function(*arguments)), lambda: _awaited(function(*arguments)))


def _check_functions(call: str, handle: Any, dead_letter: Any) -> None:
    a_function(f"{call}: handle", handle)
    if dead_letter is not None:
        a_function(f"{call}: dead_letter", dead_letter)


def _not_awaitable(answer: object) -> object:
    """What a plain function returned; a coroutine that nobody awaits would pass for work that was done."""
    if inspect.iscoroutine(answer):
        answer.close()
        text = "run_forever: handler and dead_letter are not awaited: use run_forever_async with builder.open()"
        raise StreamConfigError(text)
    return answer


async def _awaited(answer: object) -> object:
    if not inspect.isawaitable(answer):
        raise StreamConfigError("run_forever_async: handler and dead_letter are awaited: make them `async def`")
    return await answer


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
