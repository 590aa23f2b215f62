"""Tags, compared with live Java: the same are created, renamed, replaced and deleted, and the same files are left."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pypaimon import CatalogFactory

from pypaimon.streaming import (
    MaintenancePolicy,
    Position,
    TableChangedError,
    maintain,
    stream_read_builder,
    stream_write_builder,
)
from pypaimon.streaming.maintenance import create_tag, delete_tag, list_tags, rename_tag, replace_tag
from support.java.live import JavaError, LiveJava
from support.samples import SOAK, examples, seeded
from support.tables.named_files import files_of, needed_files
from support.tables.streamed_table import available

pytestmark = [pytest.mark.java, pytest.mark.slow, pytest.mark.soak]

FIELDS = [["k", "BIGINT NOT NULL"], ["v", "INT"]]
OPTIONS = {"bucket": "1", "snapshot.expire.limit": "0", "tag.time-expire-enabled": "false"}
ALL = MaintenancePolicy(expire_limit=0, expire_tags=False)
START = datetime(2026, 3, 27, tzinfo=timezone.utc)
"""Two days before the clocks of Europe change."""


class Twins:
    """A table that Java writes, and its copy; Java changes the tags of the one, and this library those of the other."""

    def __init__(self, java: LiveJava, directory: Path, zone: str = "UTC", **options: str) -> None:
        self.java = java
        self.warehouses = {side: directory / side for side in ("java", "ours")}
        java.call(
            "create", warehouse=str(self.warehouses["java"]), fields=FIELDS, partition_keys=[], primary_keys=["k"],
            options={**OPTIONS, **options}, zone=zone,
        )  # fmt: skip

    def write(self, random: random.Random, commits: int) -> None:
        """Let Java commit, which creates no tags: the options that ask for them come later."""
        for _ in range(commits):
            if random.random() < 0.3:
                self.java.call("compact", full=True, options={})
            else:
                rows = [["+I", random.randrange(9), random.randrange(99)] for _ in range(3)]
                self.java.call("write", flushes=[rows])

    def retime(self, moments: list[datetime]) -> None:
        """Move the last commits to these moments, which their watermarks are too."""
        for number, moment in zip(self.ids()[-len(moments) :], moments, strict=True):
            path = self.path("java") / "snapshot" / f"snapshot-{number}"
            millis = round(moment.timestamp() * 1000)
            path.write_text(json.dumps({**json.loads(path.read_text()), "timeMillis": millis, "watermark": millis}))

    def copy(self) -> None:
        shutil.rmtree(self.warehouses["ours"], ignore_errors=True)
        shutil.copytree(self.warehouses["java"], self.warehouses["ours"])

    def ids(self) -> list[int]:
        return sorted(int(path.name[9:]) for path in (self.path("java") / "snapshot").glob("snapshot-*"))

    def path(self, side: str) -> Path:
        return self.warehouses[side] / "d.db" / "t"

    def ours(self, **options: str) -> Any:
        return CatalogFactory.create({"warehouse": str(self.warehouses["ours"])}).get_table("d.t").copy(options)

    def tags(self, side: str) -> dict[str, Any]:
        """The tag files, without the time of their creation."""
        files = [path for path in (self.path(side) / "tag").glob("tag-*") if path.is_file()]
        found = {path.name: json.loads(path.read_text()) for path in files}
        for each in found.values():
            each.pop("tagCreateTime", None)
        return found

    def assert_equal(self) -> None:
        """The same tags; here no file but the needed ones, which Java has too."""
        assert self.tags("ours") == self.tags("java")
        left = files_of(self.path("ours"))
        assert left == needed_files(self.path("ours"))
        # Java leaves the files of a replaced tag.
        assert left <= files_of(self.path("java"))


@pytest.mark.parametrize("mode", ["process-time", "watermark"])
def test_the_automatic_tags_are_those_of_java(java: LiveJava, tmp_path: Path, mode: str) -> None:
    for number in range(examples(6)):
        random = seeded(f"automatic tags {mode} {number}")
        twins = Twins(java, tmp_path / str(number))
        zone = random.choice(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu"])
        options = {
            "tag.automatic-creation": mode,
            "tag.creation-period": random.choice(["daily", "hourly", "two-hours"]),
            "tag.period-formatter": random.choice(["with_dashes", "without_dashes", "without_dashes_and_spaces"]),
            "tag.creation-delay": f"{random.choice([0, 10, 59])} min",
            "tag.automatic-completion": str(random.random() < 0.5).lower(),
            "sink.process-time-zone" if mode == "process-time" else "sink.watermark-time-zone": zone,
            **random.choice([{}, {"tag.num-retained-max": "3"}]),
            **random.choice([{}, {"tag.creation-period-duration": "90 min"}]),
        }
        moment = START
        for round_number in range(3 if SOAK else 2):
            before = len(twins.ids())
            twins.write(random, 8)
            moments = []
            for _ in range(len(twins.ids()) - before):
                moment += timedelta(minutes=random.choice([1, 20, 61, 180, 1500]))
                moments.append(moment)
            twins.retime(moments)
            twins.copy()
            java.call("tags", operation="automatic", options=options)
            plan = maintain(twins.ours(**options), ALL).plan
            assert twins.tags("ours") == twins.tags("java") != {}, f"{options}, round {round_number}"
            assert plan.created_tags or round_number
            java.call("expire", options={**KEPT, "snapshot.expire.limit": "1000"})
            twins.copy()
        # Too many tags go with their files.
        options["tag.num-retained-max"] = "1"
        twins.write(random, 1)
        twins.retime([moment + timedelta(days=4)])
        twins.copy()
        java.call("tags", operation="automatic", options=options)
        maintain(twins.ours(**options), ALL)
        assert len(twins.tags("ours")) == 1
        twins.assert_equal()


KEPT = {"snapshot.num-retained.min": "1", "snapshot.num-retained.max": "2"}


def test_operations_leave_what_java_leaves(java: LiveJava, tmp_path: Path) -> None:
    for number in range(examples(8)):
        random = seeded(f"tags {number}")
        options = {"changelog-producer": "input"} if random.random() < 0.5 else {}
        twins = Twins(java, tmp_path / str(number), **options)
        twins.write(random, 10)
        twins.copy()
        names: dict[str, int] = {}
        replaced = False
        for step in range(14):
            ids = sorted({*twins.ids(), *names.values()})
            what = random.choice(["create", "create", "create", "rename", "replace", "delete", "delete", "expire"])
            name = random.choice(sorted(names)) if names else "none"
            if what == "create":
                new, snapshot = f"t{step}", random.choice(ids)
                retention = random.choice([None, 86_400_000, 1_500, 0])
                java.call("tags", operation="create", name=new, snapshot=snapshot, retention=retention)
                span = None if retention is None else timedelta(milliseconds=retention)
                create_tag(twins.ours(), new, snapshot=snapshot, retention=span)
                names[new] = snapshot
            elif what == "expire":
                java.call("expire", options={**KEPT, "snapshot.expire.limit": "1000"})
                maintain(twins.ours(**KEPT, **{"snapshot.expire.limit": "1000"}))
            elif names and what == "rename":
                java.call("tags", operation="rename", name=name, new_name=f"r{step}")
                rename_tag(twins.ours(), name, f"r{step}")
                names[f"r{step}"] = names.pop(name)
            elif names and what == "replace":
                snapshot = random.choice(twins.ids())
                java.call("tags", operation="replace", name=name, snapshot=snapshot)
                replace_tag(twins.ours(), name, snapshot=snapshot)
                replaced, names[name] = True, snapshot
            elif names and what == "delete":
                java.call("tags", operation="delete", name=name)
                delete_tag(twins.ours(), name)
                del names[name]
            twins.assert_equal()
        assert {each.name: each.snapshot.id for each in list_tags(twins.ours())} == names
        extra = files_of(twins.path("java")) - files_of(twins.path("ours"))
        assert replaced or not extra


def test_each_reads_the_tags_of_the_other(java: LiveJava, tmp_path: Path) -> None:
    twins = Twins(java, tmp_path, zone="Asia/Kathmandu")
    twins.write(seeded("tags of the other"), 6)
    shutil.copytree(twins.warehouses["java"], tmp_path / "away")
    shutil.rmtree(twins.warehouses["java"])
    twins.warehouses["ours"] = twins.warehouses["java"]
    shutil.copytree(tmp_path / "away", twins.warehouses["java"])
    ours = twins.ours(**{"time-zone": "Asia/Kathmandu"})
    java.call("tags", operation="create", name="by java", snapshot=2, retention=1_234_567)
    create_tag(ours, "by us", snapshot=3, retention=timedelta(milliseconds=1_234_567))
    texts = {name: (twins.path("java") / "tag" / f"tag-{name}").read_text() for name in ("by java", "by us")}
    line = next(each for each in texts["by java"].splitlines() if "tagTimeRetained" in each)
    assert line in texts["by us"].splitlines(), "the same decimals"
    by_java, by_us = list_tags(ours)
    assert by_java.created is not None and by_us.created is not None
    assert abs(by_java.created - by_us.created) < timedelta(minutes=5), "of the same zone"
    maintain(ours, MaintenancePolicy(min_snapshots=1, max_snapshots=1))
    listed = {each["name"]: each for each in java.call("tags", operation="list")["tags"]}
    assert listed["by us"]["snapshot"] == 3 and listed["by us"]["retention"] == 1_234_567
    assert datetime.fromisoformat(listed["by us"]["created"][:26]) == by_us.created
    for name in listed:
        assert sorted(java.call("tags", operation="keys", name=name)["keys"]) == _keys(ours, name)
    java.call("tags", operation="delete", name="by us")
    delete_tag(ours, "by java")
    assert files_of(twins.path("java")) == needed_files(twins.path("java"))


def test_streams_know_a_snapshot_again_without_its_uuid(java: LiveJava, tmp_path: Path) -> None:
    """Java 1 leaves it out of the tags and long-lived changelogs of snapshots that were committed here."""
    long_lived = {"changelog.num-retained.min": "5", "changelog.num-retained.max": "9", **KEPT}
    twins = Twins(java, tmp_path, **{"changelog-producer": "input"})
    twins.warehouses["ours"] = twins.warehouses["java"]
    with stream_write_builder(twins.ours()).open_sync() as writer:
        for key in range(1, 6):
            writer.write(pa.table({"k": [key], "v": pa.array([0], pa.int32())}))
            writer.commit()
    for consumer in (twins.path("ours") / "consumer").iterdir():
        consumer.unlink()
    java.call("tags", operation="create", name="t", snapshot=2)
    by_java = json.loads((twins.path("java") / "tag" / "tag-t").read_text())
    assert by_java.get("uuid") is None and _uuid(twins, 2) is not None

    def read(plans: int | None, **start: Any) -> tuple[list[list[int]], list[Position]]:
        """The keys of the plans, and the positions after them."""
        builder = stream_read_builder(twins.ours(**long_lived)).with_start(**start)
        with builder.new_streaming_scan() as scan:
            found = list(islice(available(scan), plans))
        read = builder.new_read()
        return [read.to_arrow(each.splits())["k"].to_pylist() for each in found], [each.position for each in found]

    keys, positions = read(None, tag="t", full=True)
    assert keys == [[1, 2], [3], [4], [5]]
    # It may also have been saved while the snapshots were there, and be used when Java has left changelogs of them.
    positions += read(3, snapshot_id=1)[1]
    java.call("expire", options={**long_lived, "snapshot.expire.limit": "1000"})
    assert twins.ids() == [4, 5]
    for position in positions:
        assert read(None, position=position)[0] == [[key] for key in range(position.snapshot, 6)]
    assert read(None, tag="t", full=True)[0] == keys

    # Another commit with the id is one nevertheless.
    java.call("rollback", snapshot=4)
    twins.write(random.Random(0), 1)
    assert _uuid(twins, 5) is None
    with pytest.raises(TableChangedError):
        read(None, position=replace(positions[0], snapshot=6, fingerprint=positions[3].fingerprint))


def _uuid(twins: Twins, snapshot: int) -> Any:
    return json.loads((twins.path("java") / "snapshot" / f"snapshot-{snapshot}").read_text()).get("uuid")


def test_java_writes_the_same_text(java: LiveJava, tmp_path: Path) -> None:
    """Of a snapshot of its own; and the same success file, but for its times."""
    twins = Twins(java, tmp_path, **{"tag.create-success-file": "true"})
    twins.write(seeded("the same text"), 2)
    twins.copy()
    java.call("tags", operation="create", name="a", snapshot=1)
    create_tag(twins.ours(), "a", snapshot=1)
    paths = [twins.path(side) / "tag" / "tag-a" for side in ("java", "ours")]
    assert paths[0].read_text() == paths[1].read_text()
    success = [path.parent / "tag-success-file" / "a_SUCCESS" for path in paths]
    first, second = (json.loads(path.read_text()) for path in success)
    assert {*first} == {*second} and success[0].read_text().split("\n")[0] == success[1].read_text().split("\n")[0]
    delete_tag(twins.ours(), "a")
    java.call("tags", operation="delete", name="a")
    assert not success[0].exists() and not success[1].exists()


def test_java_refuses_what_is_refused_here(java: LiveJava, tmp_path: Path) -> None:
    twins = Twins(java, tmp_path, **{"tag.automatic-creation": "process-time"})
    twins.write(seeded("refused"), 3)
    options = {"tag.automatic-creation": "process-time"}
    java.call("tags", operation="automatic", options=options)
    (name,) = [path.name.removeprefix("tag-") for path in (twins.path("java") / "tag").glob("tag-*")]
    tagged = json.loads((twins.path("java") / "tag" / f"tag-{name}").read_text())["id"]
    twins.copy()
    with pytest.raises(JavaError, match="already auto-tagged"):
        java.call("tags", operation="create", name="1999-01-01", snapshot=tagged)
    with pytest.raises(ValueError, match="automatic tag"):
        create_tag(twins.ours(), "1999-01-01", snapshot=tagged)
    for operation, call in (("create", create_tag), ("replace", replace_tag)):
        wrong = name if operation == "create" else "nothing"
        with pytest.raises(JavaError):
            java.call("tags", operation=operation, name=wrong, snapshot=1)
        with pytest.raises(ValueError, match="tag"):
            call(twins.ours(), wrong, snapshot=1)


def _keys(table: Any, name: str) -> list[int]:
    builder = stream_read_builder(table).with_start(tag=name, full=True)
    with builder.new_streaming_scan() as scan:
        plan = scan.plan()
        assert plan is not None
        return sorted(builder.new_read().to_arrow(plan.splits())["k"].to_pylist())
