"""`run_forever`: the loop of a service: what may pass is tried again, what cannot be handled is put aside."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from pypaimon.streaming.batches.batch import Batch, BlockingBatch
from pypaimon.streaming.concurrency.backoff import Backoff
from pypaimon.streaming.concurrency.signals import on_sigterm
from pypaimon.streaming.concurrency.waits import Wait, Waits, run, run_async
from pypaimon.streaming.errors import PaimonStreamError, StreamConfigError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.options.arguments import a_function, at_least, finite_seconds, needed

B = TypeVar("B", bound=Batch | BlockingBatch)
AsyncB = TypeVar("AsyncB", bound=Batch, covariant=True)
BlockingB = TypeVar("BlockingB", bound=BlockingBatch, covariant=True)
A = TypeVar("A", bound=Batch)
S = TypeVar("S", bound=BlockingBatch)
T = TypeVar("T")
_LOG = StreamLog(__name__)


class _Stoppable(Protocol):
    def stop(self) -> None: ...

    @property
    def is_stopping(self) -> bool: ...


class BlockingSource(_Stoppable, Protocol[BlockingB]):
    """A stream of `open_sync()`: of a table, of a group or of a database."""

    def __next__(self) -> BlockingB: ...

    def pause(self, seconds: float) -> None: ...


class AsyncSource(_Stoppable, Protocol[AsyncB]):
    """A stream of `open()`: of a table, of a group or of a database."""

    async def __anext__(self) -> AsyncB: ...

    async def pause(self, seconds: float) -> None: ...


def run_forever(
    stream: BlockingSource[S],
    handle: Callable[[S], object],
    *,
    attempts: int = 5,
    dead_letter: Callable[[S, Exception], object] | None = None,
    first_pause_seconds: float = 1.0,
    longest_pause_seconds: float = 60.0,
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
        first_pause_seconds: Pause after one failure; half of it is random.
        longest_pause_seconds: Bound of the doubling pauses.

    Raises:
        StreamConfigError: The handler or `dead_letter` is asynchronous, or a setting is invalid.
        PaimonStreamError: The stream failed for good.
    """

    _check_functions("run_forever", handle, dead_letter)
    needed("run_forever: stream", stream, "an open stream, as open_sync() gives it", "__next__", "stop", "pause")

    def put_aside(batch: S, error: Exception) -> Wait[object]:
        assert dead_letter is not None
        return Wait(lambda: _not_awaitable(dead_letter(batch, error)), _never)

    loop = _Loop(
        _blocking(stream, backoff_of(attempts, first_pause_seconds, longest_pause_seconds)),
        lambda batch: Wait(lambda: _not_awaitable(handle(batch)), _never),
        None if dead_letter is None else put_aside,
    )
    with on_sigterm(stream.stop):
        run(loop.steps())


async def run_forever_async(
    stream: AsyncSource[A],
    handle: Callable[[A], Awaitable[object]],
    *,
    attempts: int = 5,
    dead_letter: Callable[[A, Exception], Awaitable[object]] | None = None,
    first_pause_seconds: float = 1.0,
    longest_pause_seconds: float = 60.0,
) -> None:
    """As `run_forever`, for a stream of `open()`, with a handler and a `dead_letter` that are awaited.

    If it is cancelled the batch in hand is not confirmed.
    """
    _check_functions("run_forever_async", handle, dead_letter)
    needed("run_forever_async: stream", stream, "an open stream, as open() gives it", "__anext__", "stop", "pause")
    source: _Source[A] = _Source(
        Wait(_never, lambda: _next_of(stream)),
        lambda seconds: Wait(_never, lambda: stream.pause(seconds)),
        lambda: stream.is_stopping,
        backoff_of(attempts, first_pause_seconds, longest_pause_seconds),
    )
    loop = _Loop(
        source,
        lambda batch: Wait(_never, lambda: _awaited(handle(batch))),
        None if dead_letter is None else lambda batch, error: Wait(_never, lambda: _awaited(dead_letter(batch, error))),
    )
    with on_sigterm(stream.stop):
        await run_async(loop.steps())


def waiting_out(stream: BlockingSource[S]) -> Iterator[S]:
    """The batches of a stream, retriable errors waited out as `run_forever` does it; a loop without its handler."""
    source = _blocking(stream, Backoff())
    while (batch := run(source.next())) is not None:
        yield batch


def backoff_of(attempts: int = 5, first_pause_seconds: float = 1.0, longest_pause_seconds: float = 60.0) -> Backoff:
    """The back-off of a service; see `run_forever`. Only calls of a handler are limited by the attempts.

    Raises:
        StreamConfigError: Invalid argument.
    """
    at_least(1, "run_forever: attempts", attempts)
    finite_seconds("run_forever: first_pause_seconds", first_pause_seconds)
    finite_seconds("run_forever: longest_pause_seconds", longest_pause_seconds)
    if not first_pause_seconds <= longest_pause_seconds:
        raise StreamConfigError(
            f"run_forever: pauses cannot grow from {first_pause_seconds!r} to {longest_pause_seconds!r} seconds"
        )
    return Backoff(attempts, first_pause_seconds, longest_pause_seconds)


@dataclass(frozen=True, slots=True)
class _Source(Generic[B]):
    """A stream whose retriable errors are waited out.

    Attributes:
        next_batch: The next batch; None at the end.
        pause: Waits for some seconds, or until the stream is stopped.
        is_stopping: Whether it is.
        backoff: How often a handler is called with one batch, and how long to pause.
    """

    next_batch: Wait[B | None]
    pause: Callable[[float], Wait[None]]
    is_stopping: Callable[[], bool]
    backoff: Backoff

    def next(self) -> Waits[B | None]:
        """The next batch; None at the end, and where the stream is stopped in an outage."""
        for attempt in itertools.count(1):
            was_stopping = self.is_stopping()
            answer: _Answer[B | None] = yield _tried(self.next_batch)
            error = answer.error
            if error is None:
                return answer.value
            if not _may_pass(error):
                raise error
            if was_stopping:
                return None
            text = "the stream failed (%(error)s) and continues after a pause"
            _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=_words(error))
            yield self.pause(self.backoff.pause(attempt))
        raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class _Loop(Generic[B]):
    """What both loops share.

    Attributes:
        source: Where batches come from.
        handle: Hands a batch to the handler.
        dead_letter: Puts a batch aside; or None.
    """

    source: _Source[B]
    handle: Callable[[B], Wait[object]]
    dead_letter: Callable[[B, Exception], Wait[object]] | None

    def steps(self) -> Waits[None]:
        """Everything, to the end of the stream."""
        while (batch := (yield from self.source.next())) is not None:
            if not (yield from self._is_handled(batch)):
                return

    def _is_handled(self, batch: B) -> Waits[bool]:
        """Hand a batch over, again and again; False: it was stopped in an outage, and the batch comes again."""
        failures = 0
        for attempt in itertools.count(1):
            was_stopping = self.source.is_stopping()
            answer: _Answer[object] = yield _tried(self.handle(batch))
            error = answer.error
            if error is None:
                return True
            if _may_pass(error):
                if was_stopping:
                    return False
                text = "the handler waits for what may pass (%(error)s) and is called again after a pause"
                _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=_words(error))
            elif isinstance(error, PaimonStreamError):
                raise error
            else:
                failures += 1
                text = "the handler failed with %(rows)d rows of snapshot %(snapshot)d: %(error)s"
                fields: dict[str, Any] = {"snapshot": batch.snapshot_id, "rows": batch.num_rows, "error": _words(error)}
                _LOG.warning("handler_failed", text, attempt=failures, **fields)
                if was_stopping or failures == self.source.backoff.attempts:
                    yield from self._put_aside(batch, error, fields)
                    return True
            yield self.source.pause(self.source.backoff.pause(attempt))
        raise AssertionError("unreachable")

    def _put_aside(self, batch: B, error: Exception, fields: dict[str, Any]) -> Waits[None]:
        if self.dead_letter is None:
            raise error
        _LOG.warning("dead_letter", "%(rows)d rows of snapshot %(snapshot)d are put aside: %(error)s", **fields)
        yield self.dead_letter(batch, error)


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    """What a call came to: a value, or an error."""

    value: T
    error: Exception | None = None


def _tried(wait: Wait[T]) -> Wait[_Answer[Any]]:
    """A wait whose errors are answers: raised by a wait, they would end the generator that waits."""

    def block() -> _Answer[Any]:
        try:
            return _Answer(wait.block())
        except Exception as error:  # noqa: BLE001 - the loop decides
            return _Answer(None, error)

    async def awaitable() -> _Answer[Any]:
        try:
            return _Answer(await wait.awaitable())
        except Exception as error:  # noqa: BLE001 - the loop decides
            return _Answer(None, error)

    return Wait(block, awaitable)


def _may_pass(error: Exception) -> bool:
    return isinstance(error, PaimonStreamError) and error.retriable


def _blocking(stream: BlockingSource[S], backoff: Backoff) -> _Source[S]:
    def next_batch() -> S | None:
        try:
            return stream.__next__()
        except StopIteration:
            return None

    return _Source(
        Wait(next_batch, _never),
        lambda seconds: Wait(lambda: stream.pause(seconds), _never),
        lambda: stream.is_stopping,
        backoff,
    )


async def _next_of(stream: AsyncSource[A]) -> A | None:
    try:
        return await stream.__anext__()
    except StopAsyncIteration:
        return None


def _check_functions(call: str, handle: Any, dead_letter: Any) -> None:
    a_function(f"{call}: handle", handle)
    if dead_letter is not None:
        a_function(f"{call}: dead_letter", dead_letter)


def _never() -> Any:
    raise AssertionError("the other loop waits so")


def _not_awaitable(answer: object) -> object:
    """What a plain function returned; a coroutine that nobody awaits would pass for work that was done."""
    if inspect.iscoroutine(answer):
        answer.close()
        text = "run_forever: handler and dead_letter are not awaited: use run_forever_async with builder.open()"
        raise StreamConfigError(text)
    return answer


async def _awaited(answer: Awaitable[T]) -> T:
    if not inspect.isawaitable(answer):
        raise StreamConfigError("run_forever_async: handler and dead_letter are awaited: make them `async def`")
    return await answer


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
