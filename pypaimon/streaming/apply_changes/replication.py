"""`Replication`: `replicate` as a service, which waits out what may pass and can be stopped."""

from __future__ import annotations

from pypaimon.streaming.apply_changes.replicate import Target, check_arguments, replicate, shared_commits
from pypaimon.streaming.batches.batch_stream import BlockingBatchStream
from pypaimon.streaming.batches.run_forever import Patience
from pypaimon.streaming.batches.stream_status import StreamStatus
from pypaimon.streaming.builder.builder import StreamReadBuilder
from pypaimon.streaming.concurrency.clock import Sleeper
from pypaimon.streaming.concurrency.termination import on_sigterm
from pypaimon.streaming.errors import PaimonStreamError, what_fails
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.scanning.lag import Lag

_LOG = StreamLog(__name__)


class Replication:
    """Keeps a target equal to a table for as long as a service runs. Its calls, but for `run`, are for any thread.

    Args:
        builder: As `replicate` takes it.
        target: Likewise.
        first_pause_seconds: Of pauses after one failure; half of it is chance.
        longest_pause_seconds: They double up to it.
        commit_interval_seconds: As `replicate` takes it.

    Raises:
        StreamConfigError: The pauses cannot grow so, or another argument is something else than its name says.
    """

    def __init__(
        self,
        builder: StreamReadBuilder,
        target: Target,
        *,
        first_pause_seconds: float = 1.0,
        longest_pause_seconds: float = 60.0,
        commit_interval_seconds: float | None = None,
    ) -> None:
        check_arguments("Replication", builder, target)
        shared_commits("Replication", target, commit_interval_seconds)
        self._builder = builder
        self._target = target
        self._patience = Patience(first_pause=first_pause_seconds, longest_pause=longest_pause_seconds)
        self._commit_interval_seconds = commit_interval_seconds
        self._sleeper = Sleeper(builder._clock)
        self._stream: BlockingBatchStream | None = None
        self._stopping = False

    def run(self) -> None:
        """`replicate`, until the end that the builder has or until `stop()`. Blocks.

        Retriable errors of the store and of the target, such as a lock, are waited out, however long they last: after
        pauses that double, another stream continues where the target stands. SIGTERM calls `stop()`, unless the program
        has a handler of its own. An outage is one WARNING a minute in the log (event `waits_out`).

        Raises:
            PaimonStreamError: As `replicate`, where it does not pass.
        """
        pauses, attempt = self._patience.pauses(), 0
        with on_sigterm(self.stop):
            while not self._stopping:
                self._stream = None
                try:
                    replicate(
                        self._builder,
                        self._target,
                        on_open=self._opened,
                        commit_interval_seconds=self._commit_interval_seconds,
                    )
                    return
                except PaimonStreamError as error:
                    if not error.retriable:
                        raise
                    if self._stream is not None and self._stream.status.batches:
                        pauses, attempt = self._patience.pauses(), 0
                    attempt += 1
                    text = "a replication failed (attempt %(attempt)d) and continues after a pause: %(error)s"
                    _LOG.outage("waits_out", text, what_fails(error), attempt=attempt, error=str(error))
                due = self._builder._clock.monotonic() + next(pauses)
                self._sleeper.until_due(due, lambda: self._stopping).block()

    def stop(self) -> None:
        """End gracefully, also from a signal handler: what is left of the plan in hand is applied, unless it fails."""
        self._stopping = True
        stream = self._stream
        if stream is not None:
            stream.stop()
        self._sleeper.wake()

    @property
    def status(self) -> StreamStatus | None:
        """What the stream of now has handed out; None: there is none yet. No IO."""
        stream = self._stream
        return None if stream is None else stream.status

    def lag(self) -> Lag | None:
        """How far the target is behind the table; None: there is no stream yet. Costs what `scan.lag()` costs."""
        stream = self._stream
        return None if stream is None else stream.lag()

    def _opened(self, stream: BlockingBatchStream) -> None:
        self._stream = stream
        if self._stopping:
            stream.stop()
