"""A live primary-key table and a stream that follows it on screen: `python -m pypaimon.streaming.demo`."""

from __future__ import annotations

import argparse
import asyncio
import collections
import importlib.util
import itertools
import random
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.schema.schema import Schema

from pypaimon.streaming import (
    AsyncStreamingTableScan,
    BlockingStreamWriter,
    Lag,
    MaintenancePolicy,
    Plan,
    compact,
    maintain,
    stream_read_builder,
    stream_write_builder,
)
from pypaimon.streaming.options import option_keys
from pypaimon.streaming.paimon.handles import ReadableTable

COLUMNS = ["order_id", "customer", "status", "amount"]
STATUSES = ("placed", "paid", "shipped", "delivered")
CUSTOMERS = ("Ada", "Edsger", "Grace", "Barbara", "Donald", "Frances")
KINDS = {"+I": "green", "-U": "dim yellow", "+U": "yellow", "-D": "red"}
SCHEMA = pa.schema(
    [
        ("order_id", pa.int64()),
        ("customer", pa.string()),
        ("status", pa.string()),
        ("amount", pa.float64()),
    ]
)
CHANGES = pa.schema([("_row_kind", pa.string()), *SCHEMA])

ROUNDS = 50
"""Rounds of writes between two compactions, each with maintenance."""
KEPT = MaintenancePolicy(min_snapshots=100, snapshot_age=60)
"""The stream reads each snapshot within a minute."""

Order = dict[str, Any]


def create_table(warehouse: str) -> Any:
    """Create the table of the demo: orders by id, with the changelog that its writer gives."""
    catalog = CatalogFactory.create({"warehouse": warehouse})
    catalog.create_database("demo", ignore_if_exists=True)
    options = {"bucket": "2", option_keys.CHANGELOG_PRODUCER.name: "input"}
    schema = Schema.from_pyarrow_schema(SCHEMA, primary_keys=["order_id"], options=options)
    catalog.create_table("demo.orders", schema, ignore_if_exists=False)
    return catalog.get_table("demo.orders")


class Writer:
    """Commits changes of orders until it is stopped: orders are placed, change their status, and are deleted.

    Every now and then it compacts the table and deletes what nobody reads any more, so that the demo may run for hours.

    Args:
        table: The table.
        writer: The writer of the table.
        interval: Seconds between rounds.
        seed: Seed of the random changes.
    """

    def __init__(self, table: Any, writer: BlockingStreamWriter, interval: float, seed: int = 7) -> None:
        self._table = table
        self._writer = writer
        self._interval = interval
        self._random = random.Random(seed)
        self._orders: dict[int, Order] = {}
        self._next_id = 1
        self._stopping = threading.Event()
        self._commit(self._place(4))

    def run(self) -> None:
        """Write round after round until `stop` is called."""
        for number in itertools.count(1):
            if self._stopping.wait(self._interval):
                return
            if number % ROUNDS == 0:
                compact(self._table, full=True)
                maintain(self._table, KEPT)
            self._commit([*self._delete_delivered(), *self._advance()])
            if self._random.random() < 0.6 or len(self._orders) < 3:
                self._commit(self._place(self._random.randint(1, 2)))

    def stop(self) -> None:
        """Make `run` return after the current round."""
        self._stopping.set()

    def _delete_delivered(self) -> list[Order]:
        finished = [order for order in self._orders.values() if order["status"] == STATUSES[-1]]
        for order in finished:
            del self._orders[order["order_id"]]
        return [{"_row_kind": "-D", **order} for order in finished]

    def _advance(self) -> list[Order]:
        changes = []
        for key in self._random.sample(sorted(self._orders), k=min(3, len(self._orders))):
            before = self._orders[key]
            after = {**before, "status": STATUSES[STATUSES.index(before["status"]) + 1]}
            changes += [{"_row_kind": "-U", **before}, {"_row_kind": "+U", **after}]
            self._orders[key] = after
        return changes

    def _place(self, count: int) -> list[Order]:
        ids = range(self._next_id, self._next_id + count)
        self._next_id += count
        orders: list[Order] = [
            {
                "order_id": key,
                "customer": self._random.choice(CUSTOMERS),
                "status": STATUSES[0],
                "amount": self._random.randint(100, 99_999) / 100,
            }
            for key in ids
        ]
        self._orders.update((order["order_id"], order) for order in orders)
        return [{"_row_kind": "+I", **order} for order in orders]

    def _commit(self, changes: list[Order]) -> None:
        self._writer.write(pa.Table.from_pylist(changes, schema=CHANGES))
        self._writer.commit()


class Screen(Protocol):
    """Shows lines, and a status line that is always visible."""

    def line(self, text: str, style: str = "") -> None: ...

    def status(self, text: str) -> None: ...

    def close(self) -> None: ...


class PlainScreen:
    """Plain lines, for pipes and terminals without rich."""

    def line(self, text: str, style: str = "") -> None:
        print(text, flush=True)

    def status(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        return


class RichScreen:
    """Coloured lines that scroll above a status line."""

    def __init__(self) -> None:
        from rich.live import Live
        from rich.text import Text

        self._text = Text
        self._live = Live(Text(""), auto_refresh=False)
        self._live.start()

    def line(self, text: str, style: str = "") -> None:
        self._live.console.print(self._text(text, style=style))

    def status(self, text: str) -> None:
        self._live.update(self._text(text, style="bold cyan"), refresh=True)

    def close(self) -> None:
        self._live.stop()


def new_screen(plain: bool) -> Screen:
    """A coloured screen on a terminal, if rich is installed (extra `cli`), otherwise plain lines."""
    if plain or not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        return PlainScreen()
    return RichScreen()


class Follower:
    """Shows the plans of the stream, and applies their changes to a state."""

    def __init__(self, screen: Screen) -> None:
        self.kinds: collections.Counter[str] = collections.Counter()
        self.state: dict[int, Order] = {}
        self._screen = screen

    def show(self, plan: Plan, rows: Iterable[Order], lag: Lag) -> None:
        """Print the rows of a plan and the lag of the stream, and apply the rows to the state."""
        for row in rows:
            kind = row.pop("_row_kind")
            self.kinds[kind] += 1
            if kind in ("+I", "+U"):
                self.state[row["order_id"]] = row
            else:
                self.state.pop(row["order_id"], None)
            values = f"{row['order_id']:>5}  {row['customer']:<8} {row['status']:<10}{row['amount']:>9.2f}"
            self._screen.line(f"snapshot {plan.snapshot_id:>4}  {plan.kind.value:<9}  {kind}  {values}", KINDS[kind])
        counts = "  ".join(f"{kind} {self.kinds[kind]}" for kind in KINDS)
        seconds = "unknown" if lag.seconds is None else f"{lag.seconds:.1f} s"
        self._screen.status(f"lag: {lag.snapshots} snapshots, {seconds}   rows: {counts}   orders: {len(self.state)}")


async def follow(table: ReadableTable, writer: Writer, seconds: float, screen: Screen) -> Follower:
    """Follow the table while it is written, until the time is up or an interrupt comes, then to the last commit."""
    builder = stream_read_builder(table).with_projection(COLUMNS).with_poll_interval_ms(100)
    scan, read, follower = builder.new_streaming_scan(), builder.new_read(), Follower(screen)
    loop = asyncio.get_running_loop()

    def interrupted(*_: object) -> None:
        signal.signal(signal.SIGINT, default)  # a second one ends the program at once
        loop.call_soon_threadsafe(writer.stop)

    default = signal.signal(signal.SIGINT, interrupted)
    loop.call_later(seconds, writer.stop)
    writing = asyncio.create_task(_write_to_the_end(writer, scan))
    try:
        async with scan.stream() as stream:
            async for plan in stream:
                rows = await read.to_arrow_async(plan.splits())
                follower.show(plan, rows.to_pylist(), await scan.lag_async())
        await writing
    finally:
        writer.stop()
        signal.signal(signal.SIGINT, default)
    return follower


async def _write_to_the_end(writer: Writer, scan: AsyncStreamingTableScan) -> None:
    """Run the writer, and stop the stream after it has handed out all commits."""
    try:
        await asyncio.to_thread(writer.run)
        while (await scan.lag_async()).snapshots != 0:  # noqa: ASYNC110 - only the lag shows that everything was read
            await asyncio.sleep(0.05)
    finally:
        scan.stop()


def run(seconds: float, interval: float, plain: bool) -> int:
    """Run the demo in a temporary warehouse, which is removed at the end; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="paimon-demo-") as warehouse:
        table = create_table(warehouse)
        screen = new_screen(plain)
        screen.line(f"Following demo.orders in {warehouse} for {seconds:g} s; Ctrl-C ends it.")
        try:
            with stream_write_builder(table).open_sync() as opened:
                follower = asyncio.run(follow(table, Writer(table, opened, interval), seconds, screen))
        finally:
            screen.close()
        builder = table.new_read_builder().with_projection(COLUMNS)
        rows = builder.new_read().to_arrow(builder.new_scan().plan().splits()).to_pylist()
        equal = {row["order_id"]: row for row in rows} == follower.state
        verdict = "equal" if equal else "DIFFER FROM"
        print(f"{sum(follower.kinds.values())} changes; the {len(rows)} orders that they leave {verdict} the table.")
        return 0 if equal else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line and run the demo."""
    parser = argparse.ArgumentParser(prog="python -m pypaimon.streaming.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long to follow the table (default: 60)")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds between rounds of writes (default: 0.5)")
    parser.add_argument("--plain", action="store_true", help="no colours, also on a terminal")
    options = parser.parse_args(arguments)
    try:
        return run(options.seconds, options.interval, options.plain)
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
