"""The reads of a random history, with the facts of its table."""

from __future__ import annotations

import random
from typing import Any

from support.java.histories import Setup
from support.java.values import value
from support.java.verdict import RETRACTING
from support.java.writer import CONSUMER, Written

OPERATORS = ("=", "<>", "<", "<=", ">", ">=", "in", "is_null", "not_null")
UNSHARED_STARTS = ("from-file-creation-time", "from-creation-timestamp")
FILTERED = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "STRING", "VARCHAR", "DATE", "TIMESTAMP")


def resolve(setup: Setup, written: Written, schema: dict[str, Any], branch: str | None) -> dict[str, Any]:
    """The read as the corpus describes one, with the facts of the table."""
    snapshots = written.snapshots(branch)
    ids = [0, *snapshots, max(snapshots, default=0) + 1, max(snapshots, default=0) + 2]
    chosen = ids[setup.pick % len(ids)]
    times = [snapshots[number]["timeMillis"] for number in snapshots] or [0]
    time = times[setup.pick % len(times)] + (setup.pick % 3 - 1)
    options: dict[str, str] = {}
    raw: dict[str, Any] = {"options": options}
    if setup.start == "restore":
        raw["restore"] = chosen
    elif setup.start.startswith("from-snapshot"):
        options |= {"scan.mode": setup.start, "scan.snapshot-id": str(chosen)}
    elif setup.start == "from-timestamp":
        options |= {"scan.mode": setup.start, "scan.timestamp-millis": str(time)}
    elif setup.start == "from-file-creation-time":
        options |= {"scan.mode": setup.start, "scan.file-creation-time-millis": str(time)}
    elif setup.start == "from-creation-timestamp":
        options |= {"scan.mode": setup.start, "scan.creation-time-millis": str(time)}
    elif setup.start == "consumer":
        raw["notify_each_plan"] = True
        options |= {"consumer-id": CONSUMER, "scan.mode": ("latest-full", "latest")[setup.pick % 2]}
        if setup.pick % 5 == 4:
            options["consumer.ignore-progress"] = "true"
    else:
        options["scan.mode"] = setup.start
    if setup.bound is not None:
        options["scan.bounded.watermark"] = str(1000 * setup.bound)
    if branch:
        raw["branch"] = branch
    _add_overwrite(setup, schema, options)
    _add_filter(setup, schema, raw)
    columns = None if setup.filter is not None else _columns_of_view(setup.view, schema)
    if columns is None:
        _add_narrow(setup, schema, raw)
    else:
        raw |= {"system_table": setup.view, "columns": columns}
    return raw


def _columns_of_view(view: str | None, schema: dict[str, Any]) -> list[list[str]] | None:
    """Names and types that a view has, or None where the table has no such view that streams.

    Not the binlog of partitioned tables: its rows, whose columns are lists, do not tell their partition as others do.
    """
    columns = [[each["name"], each["type"]] for each in schema["fields"]]
    kind = ["rowkind", "STRING"]
    if view == "audit_log":
        return [kind, *columns]
    if view == "binlog" and not schema["partition_keys"]:
        return [kind, *([name, f"ARRAY<{type_.removesuffix(' NOT NULL')}>"] for name, type_ in columns)]
    if view == "ro" and not schema["primary_keys"]:
        return columns
    if view == "row_tracking" and schema["options"].get("row-tracking.enabled") == "true":
        return [*columns, ["_ROW_ID", "BIGINT NOT NULL"], ["_SEQUENCE_NUMBER", "BIGINT NOT NULL"]]
    return None


def _add_overwrite(setup: Setup, schema: dict[str, Any], options: dict[str, str]) -> None:
    """Overwrites are read where neither side refuses.

    Not where Java's retractions are not to be had: of rows that deletion vectors removed, and of pending records,
    which Java merges although they are not sorted.
    """
    deletion_vectors = schema["options"].get("deletion-vectors.enabled") == "true"
    if not setup.overwrite or deletion_vectors or schema["options"].get("bucket") == "-2":
        return
    if not schema["primary_keys"]:
        options["streaming-read-append-overwrite"] = "true"
    elif schema["options"].get("changelog-producer", "none") in RETRACTING:
        options["streaming-read-overwrite"] = "true"


def _add_filter(setup: Setup, schema: dict[str, Any], raw: dict[str, Any]) -> None:
    fields = [each for each in schema["fields"] if isinstance(each["json"], str) and each["json"].startswith(FILTERED)]
    if setup.filter is None or not fields:
        return
    column, operator, seed = setup.filter
    chosen, op = fields[column % len(fields)], OPERATORS[operator % len(OPERATORS)]
    kind = chosen["json"].removesuffix(" NOT NULL") + " NOT NULL"
    source = random.Random(seed)
    literals = [value(kind, source, False) for _ in range(2)]
    if op in ("is_null", "not_null"):
        raw["filter"] = [chosen["name"], op, None]
    else:
        raw["filter"] = [chosen["name"], op, literals if op == "in" else literals[0]]
    unmerged = schema["options"].get("merge-engine") in ("partial-update", "aggregation", "first-row")
    no_changelog = schema["options"].get("changelog-producer", "none") == "none"
    raw["execute_filter"] = (unmerged and no_changelog) or seed % 4 == 0


def _add_narrow(setup: Setup, schema: dict[str, Any], raw: dict[str, Any]) -> None:
    if setup.narrow is None:
        return
    what, pick = setup.narrow
    if setup.start == "consumer" and what != "projection":
        return  # ours has a file per part of the table, Java one file
    if what == "bucket":
        raw["bucket_filter"] = pick % 3
    elif what == "shard":
        if setup.start in UNSHARED_STARTS and not schema["primary_keys"]:
            return  # ours refuses it where rows move between shards
        raw["shard"] = [pick % 3, 3] if pick % 2 else [pick % 2, 2]
    elif "filter" not in raw and schema["options"].get("data-evolution.enabled") != "true":
        # Java 1.4 leaves rows of data evolution out of which no projected column was written (2.1 does not).
        count = len(schema["fields"])
        raw["projection"] = list(dict.fromkeys(index % count for index in (pick, pick // 2, pick + 1)))
