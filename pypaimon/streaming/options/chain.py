"""Chain tables: a snapshot branch and a delta branch that are read as one table through any other branch.

Java's rules: docs/java-semantics.md#chain-tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from pypaimon.streaming.options.option_values import OptionValues

_MERGED = "chain-table.streaming.merge-snapshot"
_CHAIN_KEYS = "chain-table.chain-partition-keys"


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
    options: OptionValues

    @staticmethod
    def of(options: OptionValues, branch: str) -> ChainBranches | None:
        """The branches that a table is read through.

        Args:
            branch: The branch that was loaded.

        Returns:
            None for a table that is not a chain table, and for the two branches, which are ordinary tables.
        """
        if not options.boolean("chain-table.enabled", False):
            return None
        snapshot = options.text("scan.fallback-snapshot-branch")
        delta = options.text("scan.fallback-delta-branch")
        if snapshot is None or delta is None or branch.lower() in (snapshot.lower(), delta.lower()):
            return None
        return ChainBranches(snapshot, delta, options)

    def is_merged(self, of_branch: OptionValues) -> bool:
        """Whether the first plan merges the partitions of each chain into the last one.

        Args:
            of_branch: Options of the snapshot branch.
        """
        return self._first_of(_MERGED, of_branch).boolean(_MERGED, False)

    def chain_keys(self, partition_keys: list[str], of_branch: OptionValues) -> list[str]:
        """The last partition columns, which order the partitions of a chain; those before them identify the chain.

        Args:
            partition_keys: All partition columns.
            of_branch: Options of the snapshot branch.

        Raises:
            ValueError: The option does not name the last partition columns.
        """
        text = self._first_of(_CHAIN_KEYS, of_branch).text(_CHAIN_KEYS) or ""
        keys = [key.strip() for key in text.split(",")] if text.strip() else partition_keys
        if partition_keys[len(partition_keys) - len(keys) :] != keys:
            raise ValueError(f"'{_CHAIN_KEYS}' = '{text}' is not the end of the partition columns {partition_keys}")
        return keys

    def _first_of(self, key: str, of_branch: OptionValues) -> OptionValues:
        return of_branch if self.options.text(key) is None else self.options
