"""Silence of members is measured by the watcher's clock, and its own absence does not count."""

from __future__ import annotations

from pypaimon.streaming.groups.group_view import HeartbeatMonitor


def test_a_member_without_a_new_version_is_silent_for_the_time_between_listings() -> None:
    monitor = HeartbeatMonitor(2.0, 0.5)
    for second, version in enumerate((1, 2, 3, 4, 5)):
        monitor.listed({"a": 7, "b": version}, float(second), second + 0.25)
    # The version may have been written until the first listing was answered.
    assert monitor.silent_for(3.75) == {"a"}
    assert monitor.silent_for(3.8) == set()
    monitor.listed({"a": 8}, 5.0, 5.1)
    assert monitor.silent_for(0.1) == set()


def test_an_absence_counts_for_little_however_long_it_was() -> None:
    monitor = HeartbeatMonitor(2.0, 0.5)
    monitor.listed({"a": 7}, 0.0, 0.1)
    monitor.listed({"a": 7}, 1000.0, 1000.1)
    assert monitor.silent_for(0.5) == {"a"} and not monitor.silent_for(0.6)


def test_a_listing_that_failed_is_an_absence() -> None:
    monitor = HeartbeatMonitor(2.0, 0.5)
    monitor.listed({"a": 7}, 0.0, 0.0)
    monitor.failed()
    monitor.listed({"a": 7}, 1.5, 1.6)
    assert monitor.silent_for(0.5) == {"a"} and not monitor.silent_for(0.6)
    monitor.listed({"a": 7}, 3.0, 3.1)
    assert monitor.silent_for(2.0) == {"a"} and not monitor.silent_for(2.1)


def test_the_duration_of_the_first_listing_does_not_count() -> None:
    monitor = HeartbeatMonitor(2.0, 0.5)
    monitor.listed({"a": 7}, 0.0, 5.0)
    monitor.listed({"a": 7}, 5.5, 6.5)
    assert monitor.silent_for(0.5) == {"a"} and not monitor.silent_for(0.6)
    monitor.listed({"a": 7, "b": 1}, 6.5, 7.0)
    assert monitor.silent_for(1.5) == {"a"} and not monitor.silent_for(1.6)
