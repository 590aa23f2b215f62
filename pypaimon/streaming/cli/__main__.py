"""`python -m pypaimon.streaming.cli` is `paimon-stream`."""

from __future__ import annotations

from paimon_stream import main

main()
