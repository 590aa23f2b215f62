"""Consumer files: Java's format and place, names, and operations on consumer ids."""

from __future__ import annotations

import json
import os
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import Schema
from pypaimon.consumer import Consumer as PaimonConsumer
from pypaimon.consumer.consumer_manager import ConsumerManager as PaimonConsumerManager
from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming.consumers.consumer_manager import Consumer, ConsumerInfo, ConsumerManager, list_consumers
from pypaimon.streaming.consumers.consumer_names import (
    MAX_FILE_NAME_BYTES,
    ConsumerName,
    check_consumer_id,
    reader_name,
)
from pypaimon.streaming.errors import CorruptTableError, StreamConfigError
from pypaimon.streaming.io.store import Store
from support.corpus.cases import load, unpack
from support.stores.fault_file_io import Call, FaultFileIO
from support.tables.handles import catalog_with_database, write_by_pypaimon


@pytest.fixture
def manager(tmp_path: Path) -> ConsumerManager:
    return patient(LocalFileIO(), tmp_path)


def patient(file_io: Any, path: Path) -> ConsumerManager:
    """Consumers of a table, read again without pauses."""
    return ConsumerManager(file_io, str(path), store=Store(file_io, sleep=lambda _: None))


def put(manager: ConsumerManager, **files: int) -> None:
    """Files by Java's ids, with `__` for a dot."""
    for text, next_snapshot in files.items():
        manager.write(ConsumerName.parse(text.replace("__", ".").replace("_", "-")), Consumer(next_snapshot))


def texts(manager: ConsumerManager) -> dict[str, int]:
    return {info.name.text: info.next_snapshot for info in manager.infos()}


FULL_HOUSE = {
    "etl": 9,
    "etl__first_plan": 8,
    "etl__shard_0_of_2": 4,
    "etl__shard_1_of_2__first_plan": 3,
    "etl__member_a": 5,
}


# ---- the file ----


def test_the_file_is_formatted_as_java_writes_it(manager: ConsumerManager, tmp_path: Path) -> None:
    manager.reset_consumer("etl", Consumer(9))
    java = unpack("java-2.1") / "consumers/wh/d.db/t/consumer/consumer-future"
    assert (tmp_path / "consumer/consumer-etl").read_text() == java.read_text()


def test_the_owner_is_a_field_that_java_ignores(manager: ConsumerManager, tmp_path: Path) -> None:
    manager.write(ConsumerName("etl"), Consumer(7, "me"))
    assert json.loads((tmp_path / "consumer/consumer-etl").read_text()) == {"nextSnapshot": 7, "owner": "me"}
    assert PaimonConsumerManager(LocalFileIO(), str(tmp_path)).consumers() == {"etl": 7}


@pytest.mark.parametrize("archive", ["java-2.1", "java-1.4", "java-0.9"])
def test_files_of_every_java_are_read(archive: str) -> None:
    java = ConsumerManager(LocalFileIO(), str(unpack(archive) / "consumers/wh/d.db/t"))
    assert java.consumers() == {"c1": 1, "c4": 4, "end": 6, "future": 9}
    assert java.consumer("c4") == Consumer(4)
    assert java.min_next_snapshot() == 1


def test_every_branch_has_its_own_consumers() -> None:
    main = ConsumerManager(LocalFileIO(), str(load("java-2.1", "branches").warehouse / "d.db/t"))
    assert main.consumers() == {"shared": 2}
    assert main.with_branch("b1").consumers() == {"shared": 4}
    assert main.with_branch("b1").with_branch(None).consumers() == {"shared": 2}
    assert main.with_branch("b1").directory.endswith("/t/branch/branch-b1/consumer")
    assert ConsumerManager(LocalFileIO(), "/t", " ").directory == "/t/consumer"


def test_fields_of_later_releases_are_ignored() -> None:
    text = '{"nextSnapshot": 3, "owner": {"id": 1}, "later": [1, {"a": null}]}'
    assert Consumer.from_json(text) == Consumer(3, "{'id': 1}")
    assert Consumer.from_json('{"nextSnapshot": 3, "owner": null}') == Consumer(3)


DAMAGED = [
    *("", "{", '{"nextSnapshot" : 1', "[]", "null", "3", "{}", "\x00\x01\x02", "\ud800"),
    *(f'{{"nextSnapshot": {value}}}' for value in ('"3"', "1.5", "true", "-1", "null")),
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_an_error_with_its_path_and_can_be_deleted(
    manager: ConsumerManager, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "consumer" / "consumer-etl"
    path.parent.mkdir()
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    for call in (lambda: manager.consumer("etl"), manager.consumers, manager.min_next_snapshot, manager.infos):
        with pytest.raises(CorruptTableError) as caught:
            call()
        assert caught.value.path == str(path)
    assert manager.list_all_ids() == ["etl"]
    manager.delete_consumer("etl")
    assert not path.exists()


def test_a_file_that_is_just_being_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "consumer" / "consumer-etl"
    path.parent.mkdir()
    path.write_text('{\n  "nextSn')

    class InTheMiddleOfAWrite(LocalFileIO):
        opened = 0

        def new_input_stream(self, name: str) -> object:
            self.opened += 1
            stream = super().new_input_stream(name)
            path.write_text('{\n  "nextSnapshot" : 5\n}') if self.opened == 2 else None
            return stream

    assert patient(InTheMiddleOfAWrite(), tmp_path).consumer("etl") == Consumer(5)


def test_a_crash_in_the_middle_of_a_write_leaves_the_old_file(manager: ConsumerManager, tmp_path: Path) -> None:
    manager.write(ConsumerName("etl"), Consumer(5, "me"))

    class Crash(BaseException):
        pass

    class Crashing(LocalFileIO):
        def new_output_stream(self, path: str) -> object:
            with super().new_output_stream(path) as stream:
                stream.write(b'{"next')
            raise Crash

    with pytest.raises(Crash):
        ConsumerManager(Crashing(), str(tmp_path)).write(ConsumerName("etl"), Consumer(6, "me"))
    assert manager.consumers() == {"etl": 5}
    assert PaimonConsumerManager(LocalFileIO(), str(tmp_path)).consumers() == {"etl": 5}


def test_readers_of_a_file_see_the_old_or_the_new_one(manager: ConsumerManager) -> None:
    name = ConsumerName("etl")
    manager.write(name, Consumer(0, "me"))
    writer = threading.Thread(target=lambda: [manager.write(name, Consumer(n, "x" * n)) for n in range(300)])
    writer.start()
    while writer.is_alive():
        found = manager.read(name)
        assert found is not None
        assert found.owner in ("me", "x" * found.next_snapshot)
    writer.join()


# ---- names ----


@pytest.mark.parametrize(
    ("consumer_id", "rule"),
    [
        ("", r"^consumer id cannot be empty string\.$"),
        (" ", "blank"),
        (".", "would leave"),
        ("..", "would leave"),
        ("a/b", "would leave"),
        ("../a", "would leave"),
        ("a\\b", "would leave"),
        ("a?b", "cannot contain"),
        ("a#b", "cannot contain"),
        ("a%2Fb", "cannot contain"),
        ("a\nb", "cannot contain"),
        ("a\0", "cannot contain"),
        ("x" * 200, "too long"),
        ("ü" * 100, "too long"),
        ("etl.first-plan", "reserved"),
        ("etl.shard-0-of-2", "reserved"),
        ("etl.shard-5-of-2", "reserved"),
        ("etl.member-a", "reserved"),
        ("etl.member-a.b", "reserved"),
        (".first-plan", "reserved"),
        (7, r"expected str, got 7 \(int\)"),
    ],
)
def test_an_id_that_cannot_name_a_file_of_its_own_is_refused(
    manager: ConsumerManager, consumer_id: str, rule: str
) -> None:
    def read() -> None:
        reader_name(consumer_id)

    calls = [read, lambda: manager.consumer(consumer_id), lambda: manager.delete_consumer(consumer_id)]
    for call in [*calls, lambda: manager.reset_consumer(consumer_id, Consumer(1))]:
        with pytest.raises(StreamConfigError, match=rule):
            call()


@pytest.mark.parametrize("consumer_id", ["etl", "a.b", "team one", "ünï-kødé", "x.shard-0-of", "a.first-plan.b", "..."])
def test_other_ids_are_fine(consumer_id: str) -> None:
    check_consumer_id(consumer_id)
    assert ConsumerName.parse(consumer_id) == ConsumerName(consumer_id)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (ConsumerName("etl"), "etl"),
        (ConsumerName("etl", is_pin=True), "etl.first-plan"),
        (ConsumerName("etl", shard=(1, 4)), "etl.shard-1-of-4"),
        (ConsumerName("etl", shard=(1, 4), is_pin=True), "etl.shard-1-of-4.first-plan"),
        (ConsumerName("etl", member="a.b"), "etl.member-a.b"),
        (ConsumerName("etl", member="a", is_pin=True), "etl.member-a.first-plan"),
    ],
)
def test_the_name_identifies_the_reader(name: ConsumerName, text: str) -> None:
    assert name.text == text
    assert ConsumerName.parse(text) == name


def test_the_longest_name_fits_with_its_pin() -> None:
    longest = "x" * (MAX_FILE_NAME_BYTES - len("consumer-.first-plan"))
    assert len(reader_name(longest).pin.file_name) == MAX_FILE_NAME_BYTES
    with pytest.raises(StreamConfigError, match="too long"):
        reader_name(longest, shard=(0, 1))


def test_readers_of_one_id_that_would_overwrite_each_other_are_refused() -> None:
    with pytest.raises(StreamConfigError, match="Give each reader a name"):
        reader_name("etl", some_buckets=True)
    assert reader_name("etl", member="a", some_buckets=True).text == "etl.member-a"
    with pytest.raises(StreamConfigError, match="leave out member"):
        reader_name("etl", shard=(0, 2), member="a")
    for member in ("", "a/b", "a.first-plan", "a.member-b", "a.shard-0-of-1"):
        with pytest.raises(StreamConfigError, match="member name"):
            reader_name("etl", member=member)
    for shard in ((2, 2), (-1, 2), (0, 0), (0, 10000)):
        with pytest.raises(StreamConfigError, match="expected 0 <= i < n"):
            reader_name("etl", shard=shard)


# ---- operations on an id ----


def test_operations_on_an_id_include_all_its_files(manager: ConsumerManager) -> None:
    put(manager, **FULL_HOUSE, etl2=1)
    assert manager.list_all_ids() == ["etl", "etl2"]
    assert manager.consumers() == {"etl": 3, "etl2": 1}
    assert manager.consumer("etl") == Consumer(4)
    manager.delete_consumer("etl")
    assert texts(manager) == {"etl2": 1}
    manager.delete_consumer("etl")


def test_reset_sets_every_reader_of_the_id(manager: ConsumerManager) -> None:
    put(manager, **FULL_HOUSE, etl2=1)
    manager.reset_consumer("etl", PaimonConsumer(6))
    readers = ["etl", "etl.member-a", "etl.shard-0-of-2", "etl.shard-1-of-2"]
    assert texts(manager) == {**dict.fromkeys(readers, 6), "etl2": 1}


def test_reset_makes_a_consumer_and_refuses_nonsense(manager: ConsumerManager) -> None:
    manager.reset_consumer("new", Consumer(2, "somebody"))
    assert manager.consumer("new") == Consumer(2)
    with pytest.raises(StreamConfigError, match="negative"):
        manager.reset_consumer("new", Consumer(-1))


@pytest.mark.parametrize(
    ("including", "excluding", "left"),
    [
        ("a", None, ["a1", "abc", "b"]),
        ("a.*", None, ["b"]),
        ("a.*", "abc", ["abc", "b"]),
        ("a.*", "ab", ["b"]),
        (".*", "a.?", ["a", "a1"]),
        (".*", "", []),
        ("", None, ["a", "a1", "abc", "b"]),
    ],
)
def test_clear_matches_whole_ids(
    manager: ConsumerManager, including: str, excluding: str | None, left: list[str]
) -> None:
    put(manager, a=1, a__first_plan=1, a__shard_0_of_2=1, a1=1, abc=1, b__member_x=1)
    manager.clear_consumers(including, excluding)
    assert manager.list_all_ids() == left


def test_clear_refuses_a_bad_pattern(manager: ConsumerManager) -> None:
    with pytest.raises(StreamConfigError, match="invalid regular expression"):
        manager.clear_consumers("(")


def test_expire_deletes_what_was_not_written_since(manager: ConsumerManager, tmp_path: Path) -> None:
    put(manager, old=1, old__first_plan=1, old__shard_0_of_1=1, old__member_a=1, young=2)
    for path in (tmp_path / "consumer").glob("consumer-old*"):
        os.utime(path, (1_000_000, 1_000_000))
    manager.expire(datetime.fromtimestamp(1_000_000, tz=timezone.utc))
    assert manager.list_all_ids() == ["old", "young"]
    manager.expire(datetime.fromtimestamp(1_000_000.5))
    assert texts(manager) == {"young": 2}


def test_a_table_without_consumers(manager: ConsumerManager) -> None:
    assert manager.list_all_ids() == []
    assert manager.consumers() == {}
    assert manager.consumer("etl") is None
    assert manager.min_next_snapshot() is None
    manager.expire(datetime.now(tz=timezone.utc))
    manager.clear_consumers(".*")
    manager.delete_consumer("etl")


def test_other_files_are_left_alone(manager: ConsumerManager, tmp_path: Path) -> None:
    put(manager, etl=1)
    for name in (".consumer-etl.tmp", "_consumer-etl", "consumer-"):
        (tmp_path / "consumer" / name).write_text("")
    assert manager.consumers() == {"etl": 1}
    manager.clear_consumers(".*")
    assert len(list((tmp_path / "consumer").iterdir())) == 3


# ---- the list ----


def test_list_consumers_shows_every_file(manager: ConsumerManager, tmp_path: Path) -> None:
    put(manager, ahead=9, belated=3, belated__first_plan=6, caught_up=7)
    manager.write(ConsumerName("belated", shard=(0, 2)), Consumer(4, "me"))
    for path in (tmp_path / "consumer").iterdir():
        os.utime(path, (1_000_000, 1_000_000))
    saved = datetime.fromtimestamp(1_000_000, tz=timezone.utc)
    assert manager.infos(latest_id=6) == [
        ConsumerInfo("ahead", ConsumerName("ahead"), 9, None, saved, None),
        ConsumerInfo("belated", ConsumerName("belated"), 3, None, saved, 4),
        ConsumerInfo("belated", ConsumerName("belated", is_pin=True), 6, None, saved, 1),
        ConsumerInfo("belated", ConsumerName("belated", shard=(0, 2)), 4, "me", saved, 3),
        ConsumerInfo("caught-up", ConsumerName("caught-up"), 7, None, saved, 0),
    ]
    assert {info.lag for info in manager.infos()} == {None}


def test_list_consumers_knows_how_far_behind_they_are(tmp_path: Path) -> None:
    catalog = catalog_with_database(tmp_path, "d")
    catalog.create_table("d.t", Schema.from_pyarrow_schema(pa.schema([("id", pa.int64())])), False)
    table = catalog.get_table("d.t")
    for number in range(3):
        write_by_pypaimon(table, pa.table({"id": [number]}))
    ConsumerManager(table.file_io, table.table_path).reset_consumer("etl", Consumer(2))
    assert [(info.consumer_id, info.next_snapshot, info.lag) for info in list_consumers(table)] == [("etl", 2, 2)]


@pytest.mark.parametrize("whole", [False, True])
def test_a_consumer_whose_pin_is_deleted_while_files_are_read_is_found(tmp_path: Path, whole: bool) -> None:
    """Otherwise expiry would delete what it needs."""
    other = patient(LocalFileIO(), tmp_path)
    put(other, etl__first_plan=3, slow=7)
    file_io = FaultFileIO()

    def confirmed_after_the_listing(call: Call) -> Any:
        answer = call.answer()
        if call.kind == "list":
            file_io.wherever(None)
            put(other, etl=5)
            other.delete(ConsumerName.parse("etl.first-plan"))
        return answer

    file_io.wherever(confirmed_after_the_listing)
    manager = patient(file_io, tmp_path)
    assert (texts(manager) if whole else manager.consumers()) == {"etl": 5, "slow": 7}
