"""`python -m pypaimon.streaming.cli` is `paimon-stream`."""

from __future__ import annotations

from pypaimon.streaming.cli import main

main()
