"""File indexes of what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from written_tables import Written, rows


def test_a_writer_tells_once_which_indexes_it_does_not_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Written(tmp_path, **{"file-index.bsi.columns": "k", "file-index.range-bitmap.columns": "k, v"})
    with table.writer().open_sync() as writer:
        for key in range(2):
            writer.write(rows(key))
            writer.commit()
    told: list[dict[str, Any]] = [each.paimon for each in caplog.records if hasattr(each, "paimon")]
    (line,) = (each for each in told if each["event"] == "indexes_not_written")
    assert line["indexes"] == "bsi of k, range-bitmap of k, range-bitmap of v"
    assert line["table"] == "db.w"
