"""The one door to what is internal in pypaimon, so that a new release of it breaks in one place."""

from pypaimon.common.predicate import Predicate
from pypaimon.manifest.schema.data_file_meta import DataFileMeta
from pypaimon.manifest.schema.simple_stats import SimpleStats
from pypaimon.read.plan import Plan as PaimonPlan
from pypaimon.read.split import DataSplit
from pypaimon.schema.data_types import DataField, PyarrowFieldParser
from pypaimon.schema.table_schema import TableSchema
from pypaimon.table.file_store_table import FileStoreTable
from pypaimon.table.row.generic_row import GenericRow, GenericRowDeserializer
from pypaimon.table.source.deletion_file import DeletionFile

__all__ = [
    "DataField",
    "DataFileMeta",
    "DataSplit",
    "DeletionFile",
    "FileStoreTable",
    "GenericRow",
    "GenericRowDeserializer",
    "PaimonPlan",
    "Predicate",
    "PyarrowFieldParser",
    "SimpleStats",
    "TableSchema",
]
