"""The program `paimon-stream` (extra `cli`). Ctrl-C ends it at any moment without a stack trace.

It is outside of the package, because `import pypaimon` takes a while, and must not come before the handler of Ctrl-C.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_INTERRUPTED = 130


def main() -> None:
    """The entry point of the program."""
    try:
        try:
            with ending_on_interrupt():
                from pypaimon.streaming.cli.app import run
                from pypaimon.streaming.io.pool_registry import calls_are_left
        except ModuleNotFoundError as error:
            if error.name != "click":
                raise
            sys.exit(f"paimon-stream: {error.name} is missing; pip install 'pypaimon-streaming[cli]' brings it")
        code = _code_of(run)
        # Nothing handles an interrupt after the program is done.
        _end_on_interrupt()
    except KeyboardInterrupt:
        _end_on_interrupt()
        sys.exit(_INTERRUPTED)
    is_given_up = _is_given_up()
    if is_given_up or calls_are_left():
        # The exit of the interpreter would wait for them.
        if not is_given_up:
            import atexit

            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


@contextmanager
def ending_on_interrupt() -> Iterator[None]:
    """A context for imports, in which Ctrl-C ends the process at once: an extension module may swallow its error."""
    raises = _end_on_interrupt()
    try:
        yield
    finally:
        if raises:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_on_interrupt() -> bool:
    """Have Ctrl-C end the process at once, unless it is ignored; returns whether it would raise `KeyboardInterrupt`.

    With a Python handler, because the import of polars ignores the signal without one.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:
        signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    return raises


def _is_given_up() -> bool:
    """Whether a call to a catalog is still running. Only commands that have a table make one."""
    connectivity = sys.modules.get("pypaimon.streaming.cli.connectivity")
    return connectivity is not None and bool(connectivity.is_given_up())


def _code_of(run: Callable[[], int]) -> int:
    """Run, and return the exit code; with `--debug` show the stack trace of an error, without secrets."""
    sys.unraisablehook = _on_unraisable
    try:
        return run()
    except Exception:  # noqa: BLE001 - shown as the interpreter would
        import traceback

        from pypaimon.streaming.cli.messages import shown

        sys.stderr.write(shown(traceback.format_exc()))
        return 1


def _on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Repeat an interrupt that came in a finalizer, where it cannot be raised."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # From another thread: raised here, it would be lost again.
        again = threading.Timer(0.05, _interrupt_main)
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)


def _interrupt_main() -> None:
    """Interrupt the main thread, by a signal where there are signals for threads: only that ends a wait of it."""
    thread = threading.main_thread().ident
    if thread is not None and hasattr(signal, "pthread_kill"):
        signal.pthread_kill(thread, signal.SIGINT)
    else:
        _thread.interrupt_main()


if __name__ == "__main__":
    main()
