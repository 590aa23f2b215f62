"""`tell_of_time_zone`: in which zone Java reads what is written into ORC files."""

from __future__ import annotations

from typing import Any

from pypaimon.streaming.files.orc_local_zones import is_legacy
from pypaimon.streaming.logs import StreamLog
from pypaimon.streaming.model.arrow_types import arrow_type
from pypaimon.streaming.writing.files.file_options import orc_zone
from pypaimon.streaming.writing.files.format_limits import holds_moments

_LOG = StreamLog(__name__)
_FORMATS = ("file.format", "file.format.per.level", "changelog-file.format")

_told: set[tuple[str, str]] = set()


def tell_of_time_zone(table: Any, name: str) -> None:
    """Log, once in a process, that Java reads columns of a table right in one time zone only.

    Args:
        table: pypaimon's table.
        name: Its name.
    """
    options = table.options.options.to_map()
    columns = [field.name for field in table.fields if holds_moments(arrow_type(field.type))]
    if not columns or not is_legacy(options) or not any("orc" in str(options.get(key)) for key in _FORMATS):
        return
    zone = orc_zone(options)
    told = str(table.table_path), "UTC" if zone is None else str(zone.name)
    if told not in _told:
        _told.add(told)
        text = (
            "Java reads %(columns)s in the ORC files of %(table)s right in a JVM of time zone %(zone)s only: name "
            "another one with the option 'time-zone', or set 'orc.timestamp-ltz.legacy.type' to 'false'"
        )
        _LOG.warning("orc_time_zone", text, table=name, columns=", ".join(columns), zone=told[1])
