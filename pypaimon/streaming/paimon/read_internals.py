"""Internals of pypaimon that read tables. They import pypaimon's readers, polars and the REST API.

Modules that plans and reads of ordinary files need import this one only where they use it.
"""

from typing import TYPE_CHECKING

from pypaimon.catalog.catalog_context import CatalogContext
from pypaimon.catalog.filesystem_catalog_loader import FileSystemCatalogLoader
from pypaimon.catalog.table_query_auth import TableQueryAuthResult
from pypaimon.read.reader.auth_masking_reader import apply_auth_masking, compile_auth_masking_rules
from pypaimon.read.reader.format_row_reader import FormatRowReader
from pypaimon.read.reader.format_row_reader import _read_array as read_row_array
from pypaimon.read.reader.format_row_reader import _read_vector as read_row_vector
from pypaimon.read.reader.format_row_reader import _RowDecoder as RowDecoder
from pypaimon.read.reader.iface.record_batch_reader import _polars_arrow_table as polars_table
from pypaimon.read.table_read import TableRead
from pypaimon.read.table_scan import latest_auth_fields

if TYPE_CHECKING:

    class PaimonStreamReadBuilder:
        """For type checkers, which accept any attribute of a class with an unknown base."""

else:
    from pypaimon.read.stream_read_builder import StreamReadBuilder as PaimonStreamReadBuilder

__all__ = [
    "CatalogContext",
    "FileSystemCatalogLoader",
    "FormatRowReader",
    "PaimonStreamReadBuilder",
    "RowDecoder",
    "TableQueryAuthResult",
    "TableRead",
    "apply_auth_masking",
    "compile_auth_masking_rules",
    "latest_auth_fields",
    "polars_table",
    "read_row_array",
    "read_row_vector",
]
