"""What some families of random histories have beyond every table, and options that change how Java writes a table."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

MERGING = ("deduplicate", "partial-update", "aggregation", "first-row")
PLAIN = ("append", "evolution", *MERGING, "postpone")
BASES: dict[str, tuple[str, ...]] = {
    "deletes": ("append",),
    "cross-partition": MERGING,
    "containers": ("aggregation",),
    "indexes": ("append", "deduplicate"),
    "branches": ("append", "deduplicate", "aggregation"),
    "variants": ("append", "deduplicate", "partial-update"),
    "vectors": ("append", "evolution", "deduplicate"),
    "blobs": ("evolution",),
}
"""What the tables of a special family are otherwise: one of these of `PLAIN`."""
FAMILIES = (*PLAIN, *BASES)

Options = dict[str, str]
Columns = list[tuple[str, Any]]

_FIELDS = [
    {"id": 92, "name": "x", "type": "INT NOT NULL"},
    {"id": 93, "name": "y", "type": "STRING"},
    {"id": 94, "name": "z", "type": "INT"},
]
_TIMED = [{"id": 95, "name": "v", "type": "INT"}, {"id": 96, "name": "ts", "type": "STRING"}]
_TABLE = {"type": "ARRAY", "element": {"type": "ROW NOT NULL", "fields": _FIELDS}}
CONTAINERS: tuple[tuple[Any, Options], ...] = (
    ({"type": "ARRAY", "element": "INT"}, {"aggregate-function": "collect"}),
    ({"type": "ARRAY", "element": "INT"}, {"aggregate-function": "collect", "distinct": "true"}),
    ({"type": "MAP", "key": "STRING NOT NULL", "value": "INT"}, {"aggregate-function": "merge_map"}),
    (
        {"type": "MAP", "key": "STRING NOT NULL", "value": {"type": "ROW", "fields": _TIMED}},
        {"aggregate-function": "merge_map_with_keytime"},
    ),
    (_TABLE, {"aggregate-function": "nested_update"}),
    (_TABLE, {"aggregate-function": "nested_update", "count-limit": "3"}),
    (_TABLE, {"aggregate-function": "nested_update", "nested-key": "x"}),
    (_TABLE, {"aggregate-function": "nested_partial_update", "nested-key": "x"}),
    ("STRING", {"aggregate-function": "listagg", "distinct": "true"}),
    ("STRING", {"aggregate-function": "listagg", "list-agg-delimiter": "; "}),
)
"""Types, and options of a field with them."""
RETRACTABLE = ("collect", "merge_map", "nested_update")
SETS = ("merge_map", "merge_map_with_keytime", "nested_update", "nested_partial_update")
"""Functions of which Java leaves the order of the elements open; `collect` too, where it is distinct."""

INDEXED = ("TINYINT", "INT", "BIGINT", "STRING", "DATE", "TIMESTAMP(3)")
_NUMBERS = ("TINYINT", "INT", "BIGINT", "DATE")

_SHREDDED = (
    '{"type":"ROW","fields":[{"id":0,"name":"s0","type":{"type":"ROW","fields":[{"id":0,"name":"age",'
    '"type":"BIGINT"},{"id":1,"name":"city","type":"STRING"},'
    '{"id":2,"name":"tags","type":{"type":"ARRAY","element":"STRING"}}]}}]}'
)


def special_columns(family: str) -> st.SearchStrategy[tuple[Columns, Options]]:
    """Columns that only this family has, named s0, s1, and their options."""
    return {
        "containers": _containers(),
        "indexes": _indexes(),
        "variants": _variants(),
        "vectors": _vectors(),
        "blobs": _blobs(),
    }.get(family, st.just(([], {})))


@st.composite
def special_options(draw: st.DrawFn, family: str, base: str) -> Options:
    """Options of the table that this family asks for, whatever else was drawn."""
    if family == "cross-partition":
        return {"bucket": "-1"}
    if family == "deletes":
        vectors = draw(st.sampled_from(["true", "true", "false"]))
        return {
            "deletion-vectors.enabled": vectors,
            "deletion-vectors.bitmap64": draw(st.sampled_from(["false", "true"])),
        }
    if family == "vectors":  # which Java 1.4 writes in Avro alone
        own_files = base == "evolution" and draw(st.booleans())
        options = {"file.compression": "zstd", "changelog-file.compression": "zstd"}
        if own_files:
            return options | {"vector.file.format": "avro"}
        return options | {"file.format": "avro", "changelog-file.format": "avro"}
    return {}


def special_steps(family: str, flushes: st.SearchStrategy[Any]) -> list[st.SearchStrategy[tuple[str, dict[str, Any]]]]:
    pick = st.integers(0, 9)
    if family == "deletes":
        delete = st.fixed_dictionaries({"seed": st.integers(0, 40), "flushes": st.just([]) | flushes})
        return [st.tuples(st.just("delete"), delete)] * 8
    if family == "branches":
        names = ["branch", "branch", "branch", "branch_compact", "branch_alter"]
        return [st.tuples(st.sampled_from(names), st.fixed_dictionaries({"pick": pick}))] * 8
    return []


@st.composite
def _containers(draw: st.DrawFn) -> tuple[Columns, Options]:
    chosen = draw(st.lists(st.sampled_from(CONTAINERS), min_size=1, max_size=2))
    options: Options = {}
    for index, (_, settings) in enumerate(chosen):
        prefix = f"fields.s{index}."
        options |= {prefix + name: given for name, given in settings.items()}
        if settings["aggregate-function"] not in RETRACTABLE or draw(st.booleans()):
            options[prefix + "ignore-retract"] = "true"
    return [(f"s{index}", kind) for index, (kind, _) in enumerate(chosen)], options


@st.composite
def _indexes(draw: st.DrawFn) -> tuple[Columns, Options]:
    kinds = draw(st.lists(st.sampled_from(INDEXED), min_size=2, max_size=3))
    columns = [(f"s{index}", kind) for index, kind in enumerate(kinds)]
    numbers = ["n", *(name for name, kind in columns if kind in _NUMBERS)]
    options = {"file-index.in-manifest-threshold": draw(st.sampled_from(["0 b", "500 b", "1 mb"]))}
    for index in ("bloom-filter", "bitmap", "bsi", "range-bitmap"):
        names = numbers if index == "bsi" else ["n", *(name for name, _ in columns)]
        indexed = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
        if indexed:
            options[f"file-index.{index}.columns"] = ",".join(indexed)
    return columns, options


@st.composite
def _variants(draw: st.DrawFn) -> tuple[Columns, Options]:
    shredding = [{}, {"variant.inferShreddingSchema": "true"}, {"variant.shreddingSchema": _SHREDDED}]
    return [("s0", "VARIANT")], {"file.format": "parquet"} | draw(st.sampled_from(shredding))


@st.composite
def _vectors(draw: st.DrawFn) -> tuple[Columns, Options]:
    lengths = draw(st.lists(st.integers(1, 3), min_size=1, max_size=2))
    return [(f"s{i}", {"type": "VECTOR", "element": "FLOAT", "length": length}) for i, length in enumerate(lengths)], {}


@st.composite
def _blobs(draw: st.DrawFn) -> tuple[Columns, Options]:
    options = draw(st.sampled_from([{}, {"blob.target-file-size": "10 b"}, {"blob.split-by-file-size": "true"}]))
    return [(f"s{index}", "BLOB") for index in range(draw(st.integers(1, 2)))], options


WAREHOUSE = "{warehouse}"
"""Stands in an option's value for the directory that is known when the history runs."""

METADATA: tuple[dict[str, str], ...] = (
    {"manifest.format": "orc"},
    {"manifest.format": "parquet"},
    {"manifest.compression": "snappy"},
    {"manifest.compression": "none"},
    {"manifest.merge-min-count": "2"},
    {"manifest.merge-min-count": "2", "manifest.target-file-size": "1 kb"},
    {"manifest.delete-file-drop-stats": "true"},
    {"metadata.stats-mode": "none"},
    {"metadata.stats-mode": "counts"},
    {"metadata.stats-mode": "full"},
    {"metadata.stats-mode": "truncate(2)"},
    {"metadata.stats-dense-store": "false"},
    {"metadata.stats-keep-first-n-columns": "1"},
    {"commit.force-create-snapshot": "true"},
)
FILES: tuple[dict[str, str], ...] = (
    {"file.compression": "none"},
    {"file.compression": "snappy"},
    {"file.compression": "lz4"},
    {"file.suffix.include.compression": "true"},
    {"data-file.prefix": "rows-"},
    {"data-file.path-directory": "data"},
    {"data-file.external-paths": f"file://{WAREHOUSE}/external", "data-file.external-paths.strategy": "round-robin"},
    {"partition.legacy-name": "false"},
    {"partition.default-name": "nothing"},
    {"index-file-in-data-file-dir": "true"},
    {"deletion-vectors.bitmap64": "true"},
    {"file-index.bloom-filter.columns": "n"},
    {"file-index.bitmap.columns": "n", "file-index.in-manifest-threshold": "1 mb"},
    {"file-index.bsi.columns": "n", "file-index.in-manifest-threshold": "0 b"},
    {"read.batch-size": "2"},
    {"bucket-append-ordered": "false"},
    {"clustering.columns": "n", "clustering.incremental": "true"},
)
# Not `pk-clustering-override`: a writer of Java 1.4 that goes on loads the index of its keys in the wrong order, does
# not find them, and leaves their older records in place (https://github.com/apache/paimon/pull/7795). The corpus of 2.1
# has such tables, and so have the histories of `compacted_tables`.
KEYED: tuple[dict[str, str], ...] = (
    {"data-file.thin-mode": "true"},
    {"file.format.per.level": "0:avro"},
    {"file.format.per.level": "0:orc,5:avro"},
    {"file.compression.per.level": "0:lz4,5:none"},
    {"metadata.stats-mode.per.level": "0:none"},
    {"changelog-file.prefix": "changes-"},
    {"changelog-file.stats-mode": "none"},
    {"changelog-file.compression": "none"},
    {"changelog-producer.row-deduplicate": "true", "changelog-producer.row-deduplicate-ignore-fields": "n"},
    {"compaction.force-rewrite-all-files": "true"},
    {"compaction.force-up-level-0": "true"},
    {"force-lookup": "true"},
    {"lookup-compact": "gentle"},
    {"lookup.merge-records-threshold": "1"},
    {"dynamic-bucket.target-row-num": "2"},
)


@st.composite
def layouts(draw: st.DrawFn, keyed: bool) -> dict[str, str]:
    """Options of at most three layouts."""
    choices = (*METADATA, *FILES, *(KEYED if keyed else ()))
    count = draw(st.sampled_from([0, 0, 1, 2, 3]))
    options: dict[str, str] = {}
    for _ in range(count):
        options |= draw(st.sampled_from(choices))
    return options


def located(options: dict[str, Any], warehouse: str) -> dict[str, Any]:
    """The options with the directory in its place."""
    return {name: given.replace(WAREHOUSE, warehouse) for name, given in options.items()}
