"""What reads tables in pypaimon and is used here; importing it costs pypaimon's readers, polars and the REST API.

Modules that a plan, or the read of an ordinary file, needs import it where it is used.
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
        """For type checkers, which take any name of a class whose base they do not know."""

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
