"""Random tables, histories and reads for the comparison with live Java: hypothesis strategies and what they draw.

Rows are drawn as (count, seed) and made when a step runs, in the schema that the table then has: so histories stay
small, print well, and shrink by dropping steps and rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from hypothesis import strategies as st

from support.java.families import BASES, MERGING, layouts, special_columns, special_options, special_steps

FORMATS = ("parquet", "parquet", "orc", "avro")
NESTED: dict[str, dict[str, Any]] = {
    "array": {"type": "ARRAY", "element": "INT"},
    "map": {"type": "MAP", "key": "STRING NOT NULL", "value": "INT"},
    "row": {
        "type": "ROW",
        "fields": [{"id": 90, "name": "x", "type": "INT"}, {"id": 91, "name": "y", "type": "STRING"}],
    },
}
LOCAL = "TIMESTAMP(3) WITH LOCAL TIME ZONE"
NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(10, 2)", "DOUBLE")
OTHERS = (
    *("STRING", "VARCHAR(5)", "BOOLEAN", "BYTES", "DATE", "TIME(3)", "FLOAT", "DECIMAL(25, 2)"),
    *("TIMESTAMP(0)", "TIMESTAMP(3)", "TIMESTAMP(6)", LOCAL),
    *NESTED,
)
KEY_TYPES = ("INT", "BIGINT", "STRING", "DATE", "DECIMAL(10, 2)", "TIMESTAMP(3)", "BOOLEAN", "SMALLINT")
PARTITION_TYPES = ("INT", "STRING", "DATE", "BOOLEAN", "BIGINT", "SMALLINT", "TIMESTAMP(3)", "DECIMAL(10, 2)", LOCAL)
WIDER = {
    "TINYINT": ("SMALLINT", "INT", "BIGINT"),
    "SMALLINT": ("INT", "BIGINT", "DOUBLE"),
    "INT": ("BIGINT", "DOUBLE", "STRING", "DECIMAL(25, 2)"),
    "FLOAT": ("DOUBLE",),
    "DECIMAL(10, 2)": ("DECIMAL(25, 2)", "STRING"),
    "VARCHAR(5)": ("VARCHAR(9)", "STRING"),
    "DATE": ("TIMESTAMP(3)", "STRING"),
    "TIMESTAMP(0)": ("TIMESTAMP(3)", "TIMESTAMP(6)"),
    "TIMESTAMP(3)": ("TIMESTAMP(6)", LOCAL),
    LOCAL: ("STRING", "TIMESTAMP(3)", "DATE"),
    "BOOLEAN": ("STRING", "INT"),
}
AGGREGATES = ("sum", "max", "min", "last_value", "last_non_null_value", "first_value", "first_non_null_value", "count")
ZONES = ("UTC", "Asia/Shanghai", "America/New_York")
STARTS = (
    *("restore", "restore", "restore", "from-snapshot", "from-snapshot", "from-snapshot-full", "from-snapshot-full"),
    *("latest-full", "latest-full", "latest", "compacted-full"),
    *("from-timestamp", "from-file-creation-time", "from-creation-timestamp", "consumer", "consumer"),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """A read, still without the facts of the table: numbers are picks, taken modulo what there is.

    Attributes:
        start: One of `STARTS`.
        pick: Which snapshot (or time of one) it is about.
        filter: (column, operator, seed of the value), or None.
        narrow: None, or one of `projection`, `bucket`, `shard`, each with its pick.
        overwrite: Whether overwrite snapshots are read.
        branch: Read the branch, if there is one.
        view: A system table, or None.
        bound: Seconds of the bounded watermark, or None.
    """

    start: str
    pick: int = 0
    filter: tuple[int, int, int] | None = None
    narrow: tuple[str, int] | None = None
    overwrite: bool = False
    branch: bool = False
    view: str | None = None
    bound: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A table, what is done to it, and how it is read.

    Attributes:
        steps: (what, arguments); see `support.java.writer.Writer`.
        zone: The time zone of the JVM, which the table names for ours.
    """

    family: str
    fields: tuple[tuple[str, Any], ...]
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: dict[str, str]
    steps: tuple[tuple[str, dict[str, Any]], ...]
    reads: tuple[Setup, ...]
    zone: str = "UTC"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(raw: dict[str, Any]) -> History:
        setups = tuple(
            Setup(**{key: tuple(value) if isinstance(value, list) else value for key, value in each.items()})
            for each in raw["reads"]
        )
        return History(
            raw["family"],
            tuple((name, kind) for name, kind in raw["fields"]),
            tuple(raw["partition_keys"]),
            tuple(raw["primary_keys"]),
            raw["options"],
            tuple((what, arguments) for what, arguments in raw["steps"]),
            setups,
            raw.get("zone", "UTC"),
        )


@st.composite
def random_histories(draw: st.DrawFn, family: str) -> History:
    base = draw(st.sampled_from(BASES.get(family, (family,))))
    keyed = base not in ("append", "evolution")
    crossing = family == "cross-partition"
    partitions = draw(st.sampled_from([("p",), ("p", "q")] if crossing else [(), (), ("p",), ("p", "q")]))
    keys = () if not keyed else ("k", "l") if draw(st.integers(0, 4)) == 4 else ("k",)
    fields = [(name, f"{draw(st.sampled_from(KEY_TYPES))} NOT NULL") for name in keys]
    partition_suffix = " NOT NULL" if keyed and not crossing else ""
    fields += [(name, draw(st.sampled_from(PARTITION_TYPES)) + partition_suffix) for name in partitions]
    fields.append(("n", "BIGINT"))
    kinds = draw(st.lists(st.sampled_from(NUMBERS + OTHERS), min_size=0, max_size=3))
    fields += [(f"c{index}", NESTED.get(kind, kind)) for index, kind in enumerate(kinds)]
    columns = [name for name, _ in fields if name not in keys and name not in partitions]
    options = draw(layouts(keyed))
    evolution = base == "evolution"
    options |= draw(_keyed_options(base, dict(fields), columns) if keyed else _append_options(evolution))
    special, special_fields = draw(special_columns(family))
    options |= special_fields | draw(special_options(family, base))
    if "aggregation.remove-record-on-delete" in options:
        options = {name: given for name, given in options.items() if not name.endswith("ignore-retract")}
    if crossing:  # which Java refuses to put in an order of its own
        options = {name: given for name, given in options.items() if not name.startswith("sequence.field")}
    step = st.one_of([*_steps(bool(partitions), evolution), *special_steps(family, FLUSHES)])
    steps = draw(st.lists(step, min_size=3, max_size=14))
    reads = draw(st.lists(_setups(family), min_size=1, max_size=5))
    primary_keys = () if not keyed else keys if crossing else (*partitions, *keys)
    zone = draw(st.sampled_from(ZONES))
    return History(family, (*fields, *special), partitions, primary_keys, options, tuple(steps), tuple(reads), zone)


def _maybe(options: dict[str, str], draw: st.DrawFn, one_in: int, values: dict[str, str]) -> None:
    """Add options, in one of so many cases."""
    if draw(st.integers(1, one_in)) == one_in:
        options.update(values)


def _general_options(draw: st.DrawFn) -> dict[str, str]:
    options = {"file.format": draw(st.sampled_from(FORMATS))}
    retention = draw(st.sampled_from([None, None, None, None, (1, 3, None), (2, 4, None), (1, 2, 5), (2, 3, 20)]))
    if retention is not None:
        least, most, changelogs = retention
        options |= {"snapshot.num-retained.min": str(least), "snapshot.num-retained.max": str(most)}
        if changelogs is not None:
            options["changelog.num-retained.max"] = str(changelogs)
            options["changelog.num-retained.min"] = str(least)
    return options


@st.composite
def _append_options(draw: st.DrawFn, evolution: bool) -> dict[str, str]:
    options = _general_options(draw)
    if evolution:
        options |= {"bucket": "-1", "row-tracking.enabled": "true", "data-evolution.enabled": "true"}
    elif draw(st.booleans()):
        options["bucket"] = draw(st.sampled_from(["1", "2", "3"]))
        options["bucket-key"] = "n"
        options["compaction.max.file-num"] = draw(st.sampled_from(["2", "3", "50"]))
    else:
        options["bucket"] = "-1"
        _maybe(options, draw, 4, {"row-tracking.enabled": "true"})
    options["compaction.min.file-num"] = draw(st.sampled_from(["2", "3", "5"]))
    _maybe(options, draw, 4, {"write-only": "true"})
    return options


@st.composite
def _keyed_options(draw: st.DrawFn, family: str, types: dict[str, Any], columns: list[str]) -> dict[str, str]:
    options = _general_options(draw)
    engine = draw(st.sampled_from(MERGING)) if family == "postpone" else family
    options["merge-engine"] = engine
    producers = ["none", "lookup"] if engine == "first-row" else ["none", "input", "lookup", "full-compaction"]
    producer = options["changelog-producer"] = draw(st.sampled_from(producers))
    options["bucket"] = "-2" if family == "postpone" else draw(st.sampled_from(["1", "1", "2", "3", "-1"]))
    options["num-sorted-run.compaction-trigger"] = draw(st.sampled_from(["1", "2", "3", "5"]))
    _maybe(options, draw, 4, {"write-only": "true"})
    _maybe(options, draw, 6, {"num-levels": draw(st.sampled_from(["2", "3", "4"]))})
    _maybe(options, draw, 6, {"target-file-size": "1 kb", "page-size": "1 kb"})
    _maybe(options, draw, 8, {"write-buffer-size": "8 kb", "page-size": "1 kb", "write-buffer-spillable": "false"})
    if producer in ("none", "lookup", "input") and engine != "first-row":
        _maybe(options, draw, 4, {"deletion-vectors.enabled": "true"})
    if producer == "lookup":
        _maybe(options, draw, 4, {"changelog-producer.row-deduplicate": "true"})
    if producer == "full-compaction":
        _maybe(options, draw, 2, {"full-compaction.delta-commits": draw(st.sampled_from(["1", "2", "3"]))})
    _maybe(options, draw, 6, {"changelog-file.format": draw(st.sampled_from(FORMATS))})
    options |= draw(ENGINE_OPTIONS[engine](types, columns))
    if not any("ignore-delete" in name or "remove-record" in name for name in options):
        _maybe(options, draw, 6, {"ignore-delete": "true"})
    if engine == "deduplicate":
        _maybe(options, draw, 8, {"ignore-update-before": "true"})
    return options


def _comparable(types: dict[str, Any], columns: list[str]) -> list[str]:
    good = (*NUMBERS, "DATE", "STRING", "TIMESTAMP(3)", "TIMESTAMP(6)", "FLOAT")
    return [name for name in columns if types[name] in good]


@st.composite
def _sequence_options(draw: st.DrawFn, types: dict[str, Any], columns: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    if draw(st.integers(0, 2)) == 2:
        options["sequence.field"] = draw(st.sampled_from(_comparable(types, columns)))
        _maybe(options, draw, 4, {"sequence.field.sort-order": "descending"})
    return options


@st.composite
def _partial_update_options(draw: st.DrawFn, types: dict[str, Any], columns: list[str]) -> dict[str, str]:
    choice = draw(st.sampled_from(["plain", "sequence", "remove", "group"]))
    if choice == "remove":
        return {"partial-update.remove-record-on-delete": "true"}
    if choice == "sequence":
        return draw(_sequence_options(types, columns)) | {"ignore-delete": "true"}
    if choice == "group" and len(columns) > 1:
        options = {"fields.n.sequence-group": ",".join(columns[1:])}
        _maybe(options, draw, 2, {f"fields.{columns[1]}.aggregate-function": draw(_aggregate(types[columns[1]]))})
        if any("aggregate-function" in name for name in options):
            options[f"fields.{columns[1]}.ignore-retract"] = "true"
        return options
    return {"ignore-delete": "true"}


def _aggregate(kind: Any) -> st.SearchStrategy[str]:
    if kind in NUMBERS:
        return st.sampled_from(AGGREGATES[:7])
    if kind == "BOOLEAN":
        return st.sampled_from(["bool_or", "bool_and", "last_value"])
    if kind in ("STRING", "DATE", "TIMESTAMP(3)", "TIMESTAMP(6)"):
        return st.sampled_from(AGGREGATES[1:7] + (("listagg",) if kind == "STRING" else ()))
    return st.sampled_from(AGGREGATES[3:7])


@st.composite
def _aggregation_options(draw: st.DrawFn, types: dict[str, Any], columns: list[str]) -> dict[str, str]:
    options = draw(_sequence_options(types, columns)) if draw(st.booleans()) else {}
    _maybe(options, draw, 6, {"aggregation.remove-record-on-delete": "true"})
    removes = "aggregation.remove-record-on-delete" in options
    for name in columns:
        if name != options.get("sequence.field"):
            options[f"fields.{name}.aggregate-function"] = draw(_aggregate(types[name]))
            if not removes:
                options[f"fields.{name}.ignore-retract"] = "true"
    return options


ENGINE_OPTIONS: dict[str, Callable[[dict[str, Any], list[str]], st.SearchStrategy[dict[str, str]]]] = {
    "deduplicate": _sequence_options,
    "partial-update": _partial_update_options,
    "aggregation": _aggregation_options,
    "first-row": lambda types, columns: st.just({}),
}

SEEDS = st.integers(0, 40)
FLUSHES = st.lists(st.tuples(st.sampled_from([1, 2, 3, 5, 8, 13, 0]), SEEDS), min_size=1, max_size=3)


def _steps(partitioned: bool, evolution: bool) -> list[st.SearchStrategy[tuple[str, dict[str, Any]]]]:
    """Steps, as often as they are to come; writes and compactions come most."""
    write = st.fixed_dictionaries({"flushes": FLUSHES})
    evolve = st.fixed_dictionaries({"range_": st.integers(0, 9), "seed": SEEDS})
    watermarked = st.fixed_dictionaries({"flushes": FLUSHES, "watermark": st.integers(0, 9)})
    compact = st.fixed_dictionaries({"full": st.booleans()})
    large = st.fixed_dictionaries({"flushes": st.tuples(st.tuples(st.integers(100, 200), SEEDS))})
    partition = st.none() | SEEDS if partitioned else st.none()
    overwrite = st.fixed_dictionaries({"flushes": FLUSHES, "partition": partition})
    expire = st.fixed_dictionaries({"retain": st.integers(1, 4), "changelogs": st.none() | st.integers(2, 9)})
    alter = st.tuples(st.sampled_from(["add", "drop", "rename", "widen", "first", "nested"]), st.integers(0, 9))
    step = [
        *[st.tuples(st.just("write"), write)] * 8,
        *[st.tuples(st.just("write"), watermarked)] * 2,
        st.tuples(st.just("write"), large),
        *[st.tuples(st.just("compact"), compact)] * 3,
        *[st.tuples(st.just("overwrite"), overwrite)] * 2,
        *[st.tuples(st.just("alter"), st.fixed_dictionaries({"change": alter}))] * 2,
        st.tuples(st.just("truncate"), st.just({})),
        st.tuples(st.just("expire"), expire),
        st.tuples(st.just("rollback"), st.fixed_dictionaries({"pick": st.integers(0, 9)})),
        st.tuples(st.just("consumer"), st.fixed_dictionaries({"pick": st.integers(0, 9)})),
        st.tuples(st.just("branch"), st.fixed_dictionaries({"pick": st.integers(0, 9)})),
    ]
    if partitioned:
        step.append(st.tuples(st.just("drop_partitions"), st.fixed_dictionaries({"seed": SEEDS})))
    if evolution:
        step += [st.tuples(st.just("evolve"), evolve)] * 5
    return step


def _setups(family: str) -> st.SearchStrategy[Setup]:
    pick = st.integers(0, 12)
    filters = st.tuples(st.integers(0, 7), st.integers(0, 8), SEEDS)
    branch = [True, True, False] if family == "branches" else [False, False, False, True]
    narrow = st.sampled_from(["projection", "bucket", "shard"])
    return st.builds(
        Setup,
        start=st.sampled_from(STARTS),
        pick=pick,
        filter=filters if family == "indexes" else st.none() | st.none() | filters,
        narrow=st.none() | st.tuples(narrow, pick),
        overwrite=st.sampled_from([False, False, True]),
        branch=st.sampled_from(branch),
        view=st.sampled_from([None, None, None, None, "audit_log", "binlog", "ro", "row_tracking"]),
        bound=st.none() | st.none() | st.none() | st.integers(0, 9),
    )
