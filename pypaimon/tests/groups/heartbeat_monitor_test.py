"""How long members were silent: by the watcher's own clock, and not by its own absence."""

from __future__ import annotations

from pypaimon.streaming.groups.group_view import HeartbeatMonitor


def test_who_keeps_its_number_is_silent_for_the_time_between_listings() -> None:
    silence = HeartbeatMonitor(2.0, 0.5)
    for second, beating in enumerate((1, 2, 3, 4, 5)):
        silence.listed({"a": 7, "b": beating}, float(second), second + 0.25)
    # It may have been written until the first listing came.
    assert silence.silent_for(3.75) == {"a"}
    assert silence.silent_for(3.8) == set()
    silence.listed({"a": 8}, 5.0, 5.1)
    assert silence.silent_for(0.1) == set()


def test_an_absence_counts_for_little_however_long_it_was() -> None:
    silence = HeartbeatMonitor(2.0, 0.5)
    silence.listed({"a": 7}, 0.0, 0.1)
    silence.listed({"a": 7}, 1000.0, 1000.1)
    assert silence.silent_for(0.5) == {"a"} and not silence.silent_for(0.6)


def test_a_listing_that_failed_is_an_absence() -> None:
    silence = HeartbeatMonitor(2.0, 0.5)
    silence.listed({"a": 7}, 0.0, 0.0)
    silence.failed()
    silence.listed({"a": 7}, 1.5, 1.6)
    assert silence.silent_for(0.5) == {"a"} and not silence.silent_for(0.6)
    silence.listed({"a": 7}, 3.0, 3.1)
    assert silence.silent_for(2.0) == {"a"} and not silence.silent_for(2.1)


def test_the_time_of_the_first_listing_is_no_monitor() -> None:
    silence = HeartbeatMonitor(2.0, 0.5)
    silence.listed({"a": 7}, 0.0, 5.0)
    silence.listed({"a": 7}, 5.5, 6.5)
    assert silence.silent_for(0.5) == {"a"} and not silence.silent_for(0.6)
    silence.listed({"a": 7, "b": 1}, 6.5, 7.0)
    assert silence.silent_for(1.5) == {"a"} and not silence.silent_for(1.6)
