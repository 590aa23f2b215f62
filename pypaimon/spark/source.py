"""`PaimonDataSource`: `format("pypaimon")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource

from pypaimon.spark.errors import ErrorContext, readable
from pypaimon.streaming.lazy_imports import LazyModule

if TYPE_CHECKING:
    from pyspark.sql import types
else:
    types = LazyModule("pyspark.sql.types")


class PaimonDataSource(datasource.DataSource):
    """Paimon tables as stream and batch source.

    `load()` checks the options. With a schema given by the user, and for options of streams or batches only, they are
    checked before the first batch.
    """

    @classmethod
    def name(cls) -> str:
        return "pypaimon"

    @readable
    def schema(self) -> types.StructType:
        """The columns: `_row_kind` where the table can retract, then the table's."""
        from pypaimon.spark.options.catalog_tables import for_catalog, stated_options
        from pypaimon.spark.options.source_options import parse
        from pypaimon.spark.read.source_stream import stream_of
        from pypaimon.spark.read.table_schema import source_schema
        from pypaimon.spark.spark_versions import check_limits

        options = parse(stated_options(self.options))
        check_limits(options.admission)
        return for_catalog(source_schema(stream_of(options), options), self.options)

    def streamReader(self, schema: types.StructType) -> datasource.DataSourceStreamReader:
        from pypaimon.spark.options.catalog_tables import of_catalog
        from pypaimon.spark.read.stream_reader import PaimonStreamReader

        return PaimonStreamReader(*of_catalog(self.options, schema))

    @readable
    def reader(self, schema: types.StructType) -> datasource.DataSourceReader:
        from pypaimon.spark.options.catalog_tables import of_catalog
        from pypaimon.spark.read.batch_reader import PaimonBatchReader

        return PaimonBatchReader(*of_catalog(self.options, schema))

    @readable
    def streamWriter(self, schema: types.StructType, overwrite: bool) -> datasource.DataSourceStreamArrowWriter:
        from pypaimon.spark.spark_versions import check_stream_writes
        from pypaimon.spark.write.sink import Sink

        check_stream_writes()
        from pypaimon.spark.write.stream_writer import PaimonStreamWriter

        return PaimonStreamWriter(Sink.of(self.options, schema, overwrite, streaming=True))

    @readable
    def writer(self, schema: types.StructType, overwrite: bool) -> datasource.DataSourceArrowWriter:
        from pypaimon.spark.write.batch_writer import PaimonBatchWriter
        from pypaimon.spark.write.sink import Sink

        return PaimonBatchWriter(Sink.of(self.options, schema, overwrite, streaming=False))

    @property
    def error_context(self) -> ErrorContext:
        return ErrorContext.of(self.options)

    def __repr__(self) -> str:
        return "PaimonDataSource()"


def register(spark: Any) -> None:
    """Register the data source with a session, classic or Spark Connect. Idempotent.

    Needed only where Spark ends with "Failed to find the data source: pypaimon", because it did not see the package on
    the driver's Python path: a Connect server without it, or a session that was older than the installation. The
    package must be installed on driver and executors in any case.

    Args:
        spark: A `SparkSession`.
    """
    spark.dataSource.register(PaimonDataSource)
