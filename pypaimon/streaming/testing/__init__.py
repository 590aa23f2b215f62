"""Test helpers for programs that follow tables: small tables in a directory, and a check of targets of your own.

They need no test framework: a failed check raises `AssertionError`.
"""

from pypaimon.streaming.testing.check_target import check_target
from pypaimon.streaming.testing.small_table import SmallTable

__all__ = ["SmallTable", "check_target"]
