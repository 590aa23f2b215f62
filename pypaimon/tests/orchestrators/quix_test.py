"""The source of Quix Streams, with a real broker."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pypaimon.streaming import UnsupportedTableError, stream_read_builder
from pypaimon.streaming.testing import SmallTable
from support import programs
from support.docs.doc_pages import DOCS, HOME, of_section
from support.stores.real_servers import kafka
from support.tables.chain_tables import ChainTable
from support.tables.orders import catalog, orders

pytestmark = [
    *(getattr(pytest.mark, name) for name in ("orchestrators", "java", "server", "slow")),
    pytest.mark.filterwarnings("ignore"),
]

# Quix runs a source in a process of its own, which imports the program.
PROGRAM = """
import os, signal, sys
from quixstreams import Application
from pypaimon.streaming import open_table, stream_read_builder
from pypaimon.streaming.orchestrators.quix import PaimonSource

class Killed(PaimonSource):
    left = 0

    def flush(self, timeout=None):
        super().flush(timeout)
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    brokers, warehouse, left = sys.argv[1:]
    builder = stream_read_builder(open_table("db.small", {"warehouse": warehouse}))
    source = Killed("small", builder.with_end("latest").with_catch_up("replay").with_on_expired("full"))
    source.left = int(left)
    app = Application(brokers, consumer_group=warehouse.replace("/", "."), processing_guarantee="exactly-once")
    app.add_source(source, app.topic(source.store_name + app.config.consumer_group))
    app.run()
"""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka(tmp_path_factory.mktemp("kafka")) as address:
        yield address


class Application:
    """Follows a table into a topic, each run up to its latest snapshot."""

    def __init__(self, brokers: str, directory: Path) -> None:
        self.table = SmallTable(directory / "w")
        self._brokers, self._directory = brokers, directory
        (directory / "program.py").write_text(PROGRAM)

    def run(self, kill_after: int = 0) -> str:
        """Run it, and kill the source after so many flushes (0: never); gives its log."""
        arguments = (self._brokers, str(self._directory / "w"), str(kill_after))
        command = (sys.executable, "program.py", *arguments)
        done = subprocess.run(command, cwd=self._directory, capture_output=True, text=True, check=False, timeout=300)
        assert ("failed with exitcode -9" in done.stderr) == bool(kill_after), done.stderr
        return done.stderr

    def messages(self) -> list[Any]:
        """The key, the row kind and the number of each message so far, with its snapshot."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        topic = f"source-small{str(self._directory / 'w').replace('/', '.')}"
        settings = {"group.id": "test", "enable.auto.commit": False, "enable.partition.eof": True}
        with closing(Consumer({"bootstrap.servers": self._brokers, **settings})) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
            found = []
            while (message := consumer.poll(60)).error() is None:
                row, ((name, snapshot),) = json.loads(message.value()), message.headers()
                assert (name, json.loads(message.key())) == ("snapshot_id", [row["id"]])
                found.append((int(snapshot), row["_row_kind"], row["id"], row["number"]))
            assert message.error().code() == KafkaError._PARTITION_EOF
            return found


def test_the_page_runs(brokers: str, tmp_path: Path) -> None:
    orders(catalog(tmp_path / "warehouse"))
    (block,) = of_section(DOCS / "orchestrators.md", "Quix Streams")
    text = block.text.replace(HOME, str(tmp_path)).replace("localhost:9092", brokers)
    (tmp_path / "page.py").write_text(text)
    command = [sys.executable, "-u", "page.py"]
    with programs.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        line = program.stdout.readline()
        program.terminate()
        assert program.wait(60) == 0
    assert line == "{'_row_kind': '+U', 'id': 1, 'status': 'paid', 'amount': 1.5, 'op': '+U'}\n"


def test_each_change_arrives_once_over_restarts(brokers: str, tmp_path: Path) -> None:
    application = Application(brokers, tmp_path)
    table = application.table
    table.commit({"id": 1, "number": 1}, {"id": 2, "number": 1})
    application.run()
    wanted = [(1, "+I", 1, 1), (1, "+I", 2, 1)]
    assert sorted(application.messages()) == wanted
    table.commit(("-U", {"id": 1, "number": 1}), ("+U", {"id": 1, "number": 2}))
    table.commit(("-D", {"id": 1, "number": 2}))
    for _ in range(2):
        application.run()
        found = application.messages()
        assert (sorted(found[:2]), found[2:]) == (wanted, [(2, "-U", 1, 1), (2, "+U", 1, 2), (3, "-D", 1, 2)])
    table.commit({"id": 3})
    table.commit({"id": 4})
    table.expire()
    assert "a topic cannot be emptied" in application.run()
    assert application.messages() == found


def test_a_killed_source_repeats_the_plan_that_was_not_saved(brokers: str, tmp_path: Path) -> None:
    application = Application(brokers, tmp_path)
    state, change = (1, "+I", 1, 1), (2, "-D", 1, 1)
    application.table.commit({"id": 1, "number": 1})
    # After the start is saved. A state that lacks the row would not say that it is gone, so the same one comes.
    application.run(kill_after=1)
    assert application.messages() == []
    application.table.commit(("-D", {"id": 1, "number": 1}))
    seen: list[Any] = []
    # After the rows, after their position, after the rows of the next plan, never.
    for kill_after, more in ((1, [state]), (2, [state]), (1, [change]), (0, [change])):
        application.run(kill_after)
        assert application.messages() == (seen := [*seen, *more])


def test_a_chain_table_is_refused(tmp_path: Path) -> None:
    from pypaimon.streaming.orchestrators.quix import PaimonSource

    with pytest.raises(UnsupportedTableError, match="chain table"):
        PaimonSource("chain", stream_read_builder(ChainTable(tmp_path).handle()))
