"""`paimon-stream`: the command line (extra `cli`). One module per command; `app` joins them."""

from __future__ import annotations

import atexit
import os
import sys


def main() -> None:
    """The entry point of the program."""
    try:
        from pypaimon.streaming.cli.app import run
        from pypaimon.streaming.cli.contact import is_given_up
        from pypaimon.streaming.io.io_pool import calls_are_left
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich", "yaml"):
            raise
        sys.exit(f"paimon-stream: {error.name} is missing; pip install 'pypaimon-streaming[cli]' brings it")
    code = run()
    if is_given_up() or calls_are_left():
        # The end of the interpreter would wait for them.
        if not is_given_up():
            atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
