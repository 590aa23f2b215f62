"""`paimon-stream`: the command line (extra `cli`). One module per command; `app` joins them."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """The entry point of the program."""
    try:
        from pypaimon.streaming.cli.app import run
        from pypaimon.streaming.cli.contact import is_given_up
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich", "yaml"):
            raise
        sys.exit(f"paimon-stream: {error.name} is missing; pip install 'pypaimon-streaming[cli]' brings it")
    code = run()
    if is_given_up():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
