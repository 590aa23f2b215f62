"""The one module for Spark that imports what is internal in pypaimon: catalogs, and schemas to alter tables with."""

from pypaimon.catalog.catalog_exception import TableNotExistException
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.schema.schema import Schema
from pypaimon.schema.schema_change import SchemaChange

__all__ = ["CatalogFactory", "Schema", "SchemaChange", "TableNotExistException"]
