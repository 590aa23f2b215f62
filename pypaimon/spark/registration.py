"""`register`: registers `format("pypaimon")` with a session that did not discover it."""

from __future__ import annotations

from typing import Any

from pypaimon.spark.source import PaimonDataSource


def register(spark: Any) -> None:
    """Register the data source with a session, classic or Spark Connect. Idempotent.

    Needed only where Spark's own discovery does not see the installation: an editable install, or a Connect server
    without the package on its Python path. The package must be installed on driver and executors in any case.
    """
    spark.dataSource.register(PaimonDataSource)
