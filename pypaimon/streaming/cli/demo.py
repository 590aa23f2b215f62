"""`paimon-stream demo`: a live table and a stream that follows it on screen."""

from __future__ import annotations

import click

from pypaimon.streaming import demo as live
from pypaimon.streaming.cli.global_options import log_options


@click.command(
    epilog="""\b
Examples:
  paimon-stream demo
  paimon-stream demo --seconds 10 --interval 0.1
"""
)
@log_options
@click.option("--seconds", type=click.FloatRange(0), default=60, show_default=True, help="How long to follow it.")
@click.option("--interval", type=click.FloatRange(0.01), default=0.5, show_default=True, help="Seconds between writes.")
@click.option("--plain", is_flag=True, help="No colours, also on a terminal.")
def demo(seconds: float, interval: float, plain: bool) -> int:
    """Write into a table in a temporary directory, and follow it on screen."""
    return live.run(seconds, interval, plain)
