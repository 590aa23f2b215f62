"""For tests of programs that follow tables: small tables in a directory, and a check of targets of your own.

Nothing of it needs a test framework: what is wrong is an `AssertionError`.
"""

from pypaimon.streaming.testing.check_target import check_target
from pypaimon.streaming.testing.small_table import SmallTable

__all__ = ["SmallTable", "check_target"]
