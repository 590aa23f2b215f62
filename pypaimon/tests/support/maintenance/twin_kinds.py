"""The kinds of tables that live Java and this library maintain side by side."""

from __future__ import annotations

from dataclasses import dataclass

KEYED = {"bucket": "2"}
LONG_LIVED = {"changelog.num-retained.min": "1", "changelog.num-retained.max": "6"}
OLD_PARTITIONS = {
    "partition.expiration-time": "7 d",
    "partition.timestamp-pattern": "$p-01-01",
    "partition.expiration-check-interval": "0 s",
}
PARTITIONS = (2020, 2999)
"""The values of partitioned tables, the first of which expires."""
_FIELDS = [["k", "BIGINT NOT NULL"], ["p", "INT NOT NULL"], ["v", "INT"]]
_EXTERNAL = {"data-file.external-paths": "file://{root}/external", "data-file.external-paths.strategy": "round-robin"}
_BLOBS = {"row-tracking.enabled": "true", "data-evolution.enabled": "true"}


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Attributes:
        keys: The columns of the primary key.
        options: The options; `{root}` is a directory that holds the warehouse.
        written_here: Whether this library writes such a table too.
    """

    keys: tuple[str, ...]
    options: dict[str, str]
    written_here: bool = True

    @property
    def fields(self) -> list[list[str]]:
        """Names and types of the columns."""
        return [*_FIELDS, ["b", "BLOB"]] if "data-evolution.enabled" in self.options else _FIELDS

    @property
    def compacted_here(self) -> bool:
        """Whether this library compacts such a table too."""
        return "row-tracking.enabled" not in self.options

    @property
    def is_partitioned(self) -> bool:
        return "p" in self.keys or "partition.legacy-name" in self.options

    @property
    def is_long_lived(self) -> bool:
        """Whether its changelogs outlive their snapshots."""
        return "changelog.num-retained.max" in self.options

    @property
    def may_produce(self) -> bool:
        """Whether a branch of it may have a changelog producer of its own."""
        return bool(self.keys) and "changelog-producer" not in self.options and "merge-engine" not in self.options

    @property
    def may_return(self) -> bool:
        """Whether an old state of it may be committed again."""
        return "data-evolution.enabled" not in self.options


KINDS = {
    "append": Kind((), {"bucket": "1", "bucket-key": "k"}),
    "append without buckets": Kind((), {}),
    "append, partitioned": Kind((), {"partition.legacy-name": "false"}),
    "keyed": Kind(("k",), KEYED),
    "input": Kind(("k",), {**KEYED, "changelog-producer": "input"}),
    "lookup": Kind(("k",), {**KEYED, "changelog-producer": "lookup"}),
    "full-compaction": Kind(("k",), {**KEYED, "changelog-producer": "full-compaction"}),
    "vectors": Kind(("k",), {**KEYED, "deletion-vectors.enabled": "true"}),
    "vectors, append": Kind((), {"bucket": "1", "bucket-key": "k", "deletion-vectors.enabled": "true"}),
    "dynamic buckets": Kind(("k",), {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}),
    "indexes": Kind((), {"file-index.bloom-filter.columns": "k", "file-index.in-manifest-threshold": "1 b"}),
    "indexes in manifests": Kind((), {"file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 mb"}),
    "partitioned": Kind(("p", "k"), KEYED),
    "long-lived changelogs": Kind(("k",), {**KEYED, "changelog-producer": "input", **LONG_LIVED}),
    "long-lived changelogs, append": Kind((), {"bucket": "1", "bucket-key": "k", **LONG_LIVED}),
    "long-lived changelogs, keyed": Kind(("k",), {**KEYED, **LONG_LIVED}),
    "long-lived changelogs, lookup": Kind(("k",), {**KEYED, "changelog-producer": "lookup", **LONG_LIVED}),
    "long-lived changelogs, full-compaction": Kind(
        ("k",), {**KEYED, "changelog-producer": "full-compaction", **LONG_LIVED}
    ),
    "lookup, vectors": Kind(("k",), {**KEYED, "changelog-producer": "lookup", "deletion-vectors.enabled": "true"}),
    "first row": Kind(("k",), {**KEYED, "changelog-producer": "lookup", "merge-engine": "first-row"}),
    "dynamic buckets, partitioned": Kind(("p", "k"), {"bucket": "-1", "dynamic-bucket.target-row-num": "3"}),
    "indexes, keyed": Kind(
        ("k",), {**KEYED, "file-index.bitmap.columns": "v", "file-index.in-manifest-threshold": "1 b"}
    ),
    "another directory": Kind(("k",), {**KEYED, "data-file.path-directory": "data"}),
    "other formats": Kind(("k",), {**KEYED, "file.format": "orc", "manifest.format": "orc"}, written_here=False),
    "external paths": Kind((), _EXTERNAL),
    "external paths, keyed": Kind(("p", "k"), {**KEYED, "changelog-producer": "input", **_EXTERNAL}),
    "external paths, indexes": Kind(
        ("k",),
        {**KEYED, "file-index.bloom-filter.columns": "v", "file-index.in-manifest-threshold": "1 b", **_EXTERNAL},
    ),
    "index files beside data": Kind(
        ("k",), {**KEYED, "deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"}
    ),
    "blobs": Kind((), _BLOBS),
    "long-lived changelogs, external paths": Kind(("k",), {**KEYED, **LONG_LIVED, **_EXTERNAL}),
}
