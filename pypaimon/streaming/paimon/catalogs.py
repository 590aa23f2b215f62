"""Catalogs and tables of pypaimon. They import its REST and JDBC clients."""

from pypaimon.api.rest_exception import RESTException
from pypaimon.catalog.catalog_exception import CatalogException
from pypaimon.catalog.catalog_factory import CatalogFactory
from pypaimon.table.file_store_table import FileStoreTable

__all__ = ["CatalogException", "CatalogFactory", "FileStoreTable", "RESTException"]
