"""Options that change how and where Java writes what a table holds, and never which rows a reader gets."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

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
# has such tables.
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
