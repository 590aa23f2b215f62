"""`register`: make `format("pypaimon")` known to a session that did not find it by itself."""

from __future__ import annotations

from typing import Any

from pypaimon.spark.source import PaimonDataSource


def register(spark: Any) -> None:
    """Register the data source with a session, classic or Spark Connect. Idempotent.

    Needed only where Spark's own lookup does not see the installation: an editable install, or a Connect server
    without the package on its Python path. The package must be installed on driver and executors all the same.

    Args:
        spark: A `SparkSession`.
    """
    spark.dataSource.register(PaimonDataSource)
