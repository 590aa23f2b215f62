"""Columns that Paimon adds to those of a table, in files and in the rows of a stream."""

import pyarrow as pa

SEQUENCE_NUMBER = "_SEQUENCE_NUMBER"
"""int64: the newer of two records of a key has the greater number."""
VALUE_KIND = "_VALUE_KIND"
"""int8: what a record does to its key, see `row_kinds`."""
ROW_ID = "_ROW_ID"
"""int64: the id of a row in tables with row tracking."""
WRITTEN_NUMBER = "_WRITTEN_NUMBER"
"""int64: the sequence number that a record was written with, if another one replaces it; only for merging."""
LEVEL = "_LEVEL"
"""int32: level of the record's file in the merge tree; never stored, only for merging."""
PLACE = "_PLACE"
"""int64: the place of a record that may have to be found again, else -1; never stored, only for merging."""
KEY_PREFIX = "_KEY_"
"""Prefix of the copies of the key columns in files of primary-key tables."""
ROW_KIND = "_row_kind"
"""string: the kind of a row, `+I`, `-U`, `+U` or `-D`, as users see it."""
SYSTEM_TYPES = {SEQUENCE_NUMBER: pa.int64(), VALUE_KIND: pa.int8(), ROW_ID: pa.int64()}
"""Arrow types of the system columns in files."""
