"""The golden corpus: tables written by Java Paimon, and what Java's stream scan returns for them."""

from __future__ import annotations

import json
import re
import shutil
import tarfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from pypaimon.filesystem.local_file_io import LocalFileIO

from support.corpus.outcome import BucketRows, End, Outcome, PlanRows
from support.corpus.values import wanted_value
from support.repository import TESTS, cached

ARCHIVES = ("java-2.1", "java-1.4", "java-0.9", "java-2.1-more")
DIRECTORY = TESTS / "corpus"
ARCHIVE_OF_BLOBS, WRITTEN_BELOW = "java-2.1-more", "/tmp/paimon-corpus"
"""Data files of this archive name their blobs by absolute paths below a directory of the machine that wrote them."""
REJECTING = {
    "IllegalArgumentException",
    "UnsupportedOperationException",
    "DateTimeParseException",
    "NullPointerException",
}
DAMAGED = ("Retry fail", "Failed to read manifest")
_NO_SNAPSHOT = "Snapshot file <warehouse>"
_SUGGESTIONS = "\nSuggestions:"
UNSPOKEN = {"DateTimeParseException", "NullPointerException"}
"""Errors of Java whose text is not meant for users."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read of a scenario: how it is set up, and what Java returns.

    Attributes:
        restore: Argument of `scan.restore(n)` before the first plan, or None.
        filter: (field, op, value) or None.
        time_travel: Options are given as Spark gives them, by `Table.copy`.
        starts_full: The first plan of Java is a full one, not a position.
        columns: Names and SQL types of the columns of the rows; an empty type is not known.
    """

    name: str
    options: dict[str, str]
    restore: int | None
    filter: tuple[str, str, Any] | None
    execute_filter: bool
    bucket: int | None
    shard: tuple[int, int] | None
    projection: tuple[str, ...] | None
    system_table: str | None
    branch: str | None
    time_travel: bool
    notify: bool
    starts_full: bool
    columns: tuple[tuple[str, str], ...]
    java: Outcome
    java_error: str

    def describe(self) -> str:
        """The settings that are not the default, on one line."""
        names = "options restore filter execute_filter bucket shard projection system_table branch time_travel notify"
        values = {name: getattr(self, name) for name in names.split()}
        return ", ".join(
            f"{name}={value!r}"
            for name, value in values.items()
            if value is not None and value is not False and value != {}
        )


@dataclass(frozen=True, slots=True)
class OnFile:
    """The snapshots of a table or branch, as their files say.

    Attributes:
        snapshots: Ids of those that have not expired.
        fingerprints: What tells each, and each long-lived changelog, from another one with the same id: commit user,
            identifier and time, and its uuid; None for a damaged file.
    """

    snapshots: frozenset[int] = frozenset()
    fingerprints: Mapping[int, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """One table of the corpus with its reads.

    Attributes:
        fields: Names and SQL types of the latest schema of `main`.
    """

    archive: str
    name: str
    description: str
    warehouse: Path
    table_options: dict[str, str]
    fields: tuple[tuple[str, str], ...]
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    reads: dict[str, Read]

    def has_buckets(self) -> bool:
        """Whether rows have an order within a bucket in a full plan: all tables but append tables without buckets."""
        return bool(self.primary_keys) or self.table_options.get("bucket", "-1") != "-1"


@cache
def unpack(archive: str) -> Path:
    """The directory of an archive's scenarios; unpacked at its first use on a machine."""
    packed = DIRECTORY / f"{archive}.tar.xz"

    def extract(directory: Path) -> None:
        with tarfile.open(packed) as tar:
            tar.extractall(directory, filter="data")

    return cached(archive, packed.read_bytes(), extract)


def packed_files(archive: str, scenario: str) -> set[str]:
    """Paths of the files of a scenario in its archive: what it must still consist of after all reads."""
    return {name for name in _packed_names(archive) if name.startswith(f"{scenario}/")}


@cache
def _packed_names(archive: str) -> list[str]:
    with tarfile.open(DIRECTORY / f"{archive}.tar.xz") as tar:
        return [member.name.removeprefix("./") for member in tar.getmembers() if member.isfile()]


def unpacked_files(archive: str, scenario: str) -> set[str]:
    root = unpack(archive)
    return {str(path.relative_to(root)) for path in (root / scenario).rglob("*") if path.is_file()}


def scenario_names(archive: str) -> list[str]:
    index = json.loads((unpack(archive) / "index.json").read_text())
    return [entry["name"] for entry in index["scenarios"]]


@cache
def load(archive: str, name: str) -> Scenario:
    directory = unpack(archive) / name
    raw = json.loads((directory / "expect.json").read_text())
    schema, warehouse, options = raw["schema"], directory / "wh", raw["table_options"]
    fields = tuple((field["name"], field["type"]) for field in schema["fields"])
    files_of = cache(partial(on_file, warehouse))
    return Scenario(
        archive=archive,
        name=name,
        description=raw["description"],
        warehouse=warehouse,
        table_options=options,
        fields=fields,
        partition_keys=tuple(schema["partition_keys"]),
        primary_keys=tuple(schema["primary_keys"]),
        reads={
            read["name"]: _read(read, fields, files_of(read.get("branch") or _followed_branch(options)))
            for read in raw["reads"]
        },
    )


def _followed_branch(options: dict[str, str]) -> str | None:
    """The branch whose snapshots are those of a stream of `main`; None: main itself."""
    return options["scan.fallback-delta-branch"] if options.get("chain-table.enabled") == "true" else None


def on_file(warehouse: Path, branch: str | None = None) -> OnFile:
    """The snapshots of the table `d.t`, or of a branch of it."""
    (table,) = warehouse.glob("d.db/t")
    table = table / "branch" / f"branch-{branch}" if branch else table
    snapshots, changelogs = (_fingerprints(table.glob(f"{kind}/{kind}-[0-9]*")) for kind in ("snapshot", "changelog"))
    return OnFile(frozenset(snapshots), changelogs | snapshots)


def _fingerprints(files: Iterable[Path]) -> dict[int, str | None]:
    found: dict[int, str | None] = {}
    for path in files:
        try:
            value = json.loads(path.read_text())
            said = "{commitUser}/{commitIdentifier}/{timeMillis}".format(**value)
            said += f"#{value['uuid']}" if value.get("uuid") else ""
        except ValueError:
            said = None
        found[int(path.name.rpartition("-")[2])] = said
    return found


def copy_warehouse(scenario: Scenario, directory: Path) -> Path:
    """A copy of the tables that may be written to."""
    return Path(shutil.copytree(scenario.warehouse, directory / "wh"))


_to_file = LocalFileIO._to_file


def _where_blobs_are(file_io: LocalFileIO, path: str) -> Path:
    """The unpacked file in the place of one that Java's descriptors name by the path that it had on Java's machine."""
    found = _to_file(file_io, path)
    if WRITTEN_BELOW not in str(path) or not found.is_relative_to(WRITTEN_BELOW):
        return found
    return unpack(ARCHIVE_OF_BLOBS) / found.relative_to(WRITTEN_BELOW)


LocalFileIO._to_file = _where_blobs_are


def _read(raw: dict[str, Any], fields: Sequence[tuple[str, str]], files: OnFile = OnFile()) -> Read:
    columns = _columns(raw, fields)
    projection = raw.get("projection")
    return Read(
        name=raw["name"],
        options=raw["options"],
        restore=raw["restore"],
        filter=None if raw.get("filter") is None else tuple(raw["filter"]),
        execute_filter=bool(raw.get("execute_filter")),
        bucket=raw.get("bucket_filter"),
        shard=None if raw.get("shard") is None else tuple(raw["shard"]),
        projection=None if projection is None else tuple(name for name, _ in columns),
        system_table=raw.get("system_table"),
        branch=raw.get("branch"),
        time_travel=raw.get("schema_mode") == "time_travel",
        notify=bool(raw.get("notify_each_plan")),
        starts_full=raw["restore"] is None and bool(raw["plans"]) and not raw["plans"][0].get("no_snapshot"),
        columns=columns,
        java=_outcome(raw, columns, files),
        java_error=_error_text(raw["end"]),
    )


def _columns(raw: dict[str, Any], fields: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    if "columns" in raw:
        known = dict(fields)
        given = raw["columns"]
        return tuple((name, known.get(name, "")) if isinstance(name, str) else (name[0], name[1]) for name in given)
    if raw.get("projection") is not None:
        return tuple(fields[index] for index in raw["projection"])
    return tuple(fields)


def _outcome(raw: dict[str, Any], columns: Sequence[tuple[str, str]], files: OnFile) -> Outcome:
    saved = raw.get("consumer_files_after")
    positions = None if saved is None else {path: json.loads(text)["nextSnapshot"] for path, text in saved.items()}
    end = _end(raw["end"], files.snapshots)
    return Outcome(
        plans=tuple(_plan(plan, columns, files.fingerprints) for plan in raw["plans"]),
        end=end,
        message=_message(raw["end"]) if end is End.REJECTED else None,
        final_next=raw.get("final_next"),
        columns=tuple(name for name, _ in columns),
        consumer_files=positions,
    )


def _plan(raw: dict[str, Any], columns: Sequence[tuple[str, str]], fingerprints: Mapping[int, str | None]) -> PlanRows:
    sql_types = [sql_type for _, sql_type in columns]
    fingerprint = fingerprints.get((raw["next"] or 0) - 1)
    position = None if fingerprint is None else {"snapshot": raw["next"], "fingerprint": fingerprint, "phase": "follow"}
    return PlanRows(
        next=raw["next"],
        watermark=raw["watermark"],
        splits=tuple(
            BucketRows(
                partition=json.dumps(split.get("partition"), ensure_ascii=False),
                bucket=split.get("bucket", -1),
                rows=[
                    [row[0], *(wanted_value(value, kind) for value, kind in zip(row[1:], sql_types, strict=True))]
                    for row in split["rows"]
                ],
            )
            for split in raw["splits"]
        ),
        position=position,
    )


def _error_text(end: Any) -> str:
    if isinstance(end, str):
        return ""
    error = end["error"]
    return f"{error['class'].rpartition('.')[2]} at stage {error['stage']}: {error['message']}"


def _end(end: Any, snapshots: Collection[int]) -> End:
    if isinstance(end, str):
        return {"waiting": End.WAITING, "end_of_scan": End.END_OF_SCAN}[end]
    error = end["error"]
    kind, message = error["class"].rpartition(".")[2], error["message"] or ""
    if error["stage"] == "open" or message.startswith("consumer id cannot be empty"):
        return End.REJECTED
    if kind == "OutOfRangeException":
        return End.EXPIRED if "has expired" in message else End.BEYOND_LATEST
    if lost := re.match(r"Snapshot file .*/snapshot-(\d+) does not exist", message):
        return _end_at(int(lost.group(1)), snapshots)
    if message.startswith(DAMAGED) or kind == "FileNotFoundException":
        return End.DAMAGED
    if error["stage"] == "plan" and kind in REJECTING:
        return End.REJECTED
    raise ValueError(f"no category for {end}")


def _end_at(snapshot: int, snapshots: Collection[int]) -> End:
    """How a read must end that asks for the state of a snapshot that is not there."""
    if not snapshots or snapshot > max(snapshots):
        return End.BEYOND_LATEST
    return End.EXPIRED if snapshot < min(snapshots) else End.DAMAGED


def _message(end: Any) -> str | None:
    """What Java says to the user of a read that it rejects."""
    if isinstance(end, str) or end["error"]["class"].rpartition(".")[2] in UNSPOKEN:
        return None
    message: str | None = end["error"]["message"]
    if message is not None and message.startswith(_NO_SNAPSHOT):
        return None
    if message is not None and _SUGGESTIONS in message:
        # What to do is said otherwise, and so is how a setting was named: in quotes.
        message = message.partition("'")[0]
    return None if message is None else message.partition("<warehouse>")[0]
