"""Chain tables: a snapshot branch and a delta branch that are read as one table through any other branch.

Java's rules: docs/java-semantics.md#chain-tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.options import option_keys
from pypaimon.streaming.options.option_key import TableOptions


@dataclass(frozen=True, slots=True)
class ChainBranches:
    """The branches of a chain table, and its options for the first plan of a stream.

    Attributes:
        snapshot: The branch that holds whole partitions, from time to time.
        delta: The branch that holds the changes since then, which a stream follows.
        options: Options of the branch that was loaded, which take precedence over those of the snapshot branch.
    """

    snapshot: str
    delta: str
    options: TableOptions

    @staticmethod
    def of(options: TableOptions, branch: str) -> ChainBranches | None:
        """The branches that a table is read through.

        Args:
            branch: The branch that was loaded.

        Returns:
            None for a table that is not a chain table, and for the two branches, which are ordinary tables.
        """
        if not option_keys.CHAIN_TABLE_ENABLED.of(options):
            return None
        snapshot = option_keys.SCAN_FALLBACK_SNAPSHOT_BRANCH.of(options)
        delta = option_keys.SCAN_FALLBACK_DELTA_BRANCH.of(options)
        if snapshot is None or delta is None or branch.lower() in (snapshot.lower(), delta.lower()):
            return None
        return ChainBranches(snapshot, delta, options)

    def is_merged(self, of_branch: TableOptions) -> bool:
        """Whether the first plan merges the partitions of each chain into the last one.

        Args:
            of_branch: Options of the snapshot branch.
        """
        return option_keys.CHAIN_TABLE_STREAMING_MERGE_SNAPSHOT.of({**of_branch, **self.options})

    def chain_keys(self, partition_keys: list[str], of_branch: TableOptions) -> list[str]:
        """The last partition columns, which order the partitions of a chain; those before them identify the chain.

        Args:
            partition_keys: All partition columns.
            of_branch: Options of the snapshot branch.

        Raises:
            ValueError: The option does not name the last partition columns.
        """
        option = option_keys.CHAIN_TABLE_CHAIN_PARTITION_KEYS
        text = option.of({**of_branch, **self.options}) or ""
        keys = [key.strip() for key in text.split(",")] if text.strip() else partition_keys
        if partition_keys[len(partition_keys) - len(keys) :] != keys:
            raise ValueError(f"'{option}' = '{text}' is not the end of the partition columns {partition_keys}")
        return keys
