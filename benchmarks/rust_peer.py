"""pypaimon-rust as a peer, if it is installed: native code plans and reads its tables."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PACKAGE = "pypaimon-rust"


def is_there() -> bool:
    """Whether it is installed."""
    return find_spec("pypaimon_rust") is not None


def name() -> str:
    """What it is called in the report."""
    return f"Rust ({PACKAGE} {version(PACKAGE)})" if is_there() else f"Rust ({PACKAGE})"


def table(warehouse: Path, table_name: str) -> Any:
    """A table `db.<table_name>` of a filesystem warehouse."""
    from pypaimon_rust.datafusion import PaimonCatalog  # type: ignore[import-not-found, unused-ignore]

    return PaimonCatalog({"warehouse": str(warehouse)}).get_table(f"db.{table_name}")


def splits(of: Any) -> Any:
    """The splits of its latest snapshot."""
    return of.new_read_builder().new_scan().plan().splits()


def rows(of: Any, planned: Any) -> int:
    """Read splits, batch by batch; the number of their rows."""
    return sum(batch.num_rows for batch in of.new_read_builder().new_read().read_arrow(planned))
