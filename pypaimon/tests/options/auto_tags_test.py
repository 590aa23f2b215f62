"""Names of automatic tags: which moment each stands for."""

from __future__ import annotations

from datetime import datetime

import pytest

from pypaimon.streaming import StreamConfigError
from pypaimon.streaming.options.auto_tags import AutoTags

DAY = datetime(2026, 1, 31)


def tags(**options: str) -> AutoTags:
    return AutoTags({"tag." + key.replace("_", "-"): value for key, value in options.items()})


@pytest.mark.parametrize(
    ("options", "name", "time"),
    [
        ({}, "2026-01-31", DAY),
        ({}, "2026-01-31 07", DAY),
        ({}, "20260131", None),
        ({}, "2026-1-31", None),
        ({"period_formatter": "without_dashes"}, "20260131", DAY),
        ({"period_formatter": "without_dashes_and_spaces"}, "20260131", DAY),
        ({"period_formatter": "without_dashes"}, "2026-01-31", None),
        ({"creation_period": "hourly"}, "2026-01-31 07", DAY.replace(hour=7)),
        ({"creation_period": "hourly"}, "2026-01-31", None),
        ({"creation_period": "hourly", "period_formatter": "without_dashes"}, "20260131 07", DAY.replace(hour=7)),
        (
            {"creation_period": "hourly", "period_formatter": "without_dashes_and_spaces"},
            "2026013107",
            DAY.replace(hour=7),
        ),
        ({"creation_period": "two-hours", "period_formatter": "without_dashes"}, "2026-01-31 08", DAY.replace(hour=8)),
        ({"creation_period_duration": "30 min"}, "202601310730", DAY.replace(hour=7, minute=30)),
        ({"creation_period_duration": "30 min"}, "2026-01-31", None),
        ({}, "2025-13-31", DAY),
        ({}, "2026-02-00", DAY),
        ({"creation_period": "hourly"}, "2026-01-30 24", DAY),
        ({}, "99999-01-01", None),
        ({}, "mine", None),
    ],
)
def test_the_moment_of_a_tag(options: dict[str, str], name: str, time: datetime | None) -> None:
    assert tags(**options).time(name) == time


def test_the_tag_before() -> None:
    names = ["2026-01-30", "mine", "2025-12-31", "2026-02-01", "20260131"]
    assert tags().before("2026-01-31", names) == "2026-01-30"
    assert tags().before("2025-12-31", names) is None
    with pytest.raises(StreamConfigError, match=r"Specified tag 'mine' is not an auto-created tag\."):
        tags().before("mine", names)
