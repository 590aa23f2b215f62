"""Fingerprints: which two are of one snapshot, also if one of them was saved by an earlier version or by Java 1."""

from __future__ import annotations

import pytest

from pypaimon.streaming.metadata.fingerprints import fingerprint, is_same_history

WHOLE = fingerprint("user", 7, 1_000, "u-1")
WITHOUT_UUID = fingerprint("user", 7, 1_000, None)


@pytest.mark.parametrize(
    ("saved", "found"),
    [
        (WHOLE, WHOLE),
        (WHOLE, WITHOUT_UUID),
        (fingerprint("user", 8, 1_000, "u-1"), WHOLE),
        ("u-1", WHOLE),
        ("u-1", "u-1"),
        ("user/7/1000", WHOLE),
        (fingerprint("a#b/c", 1, 2, None), fingerprint("a#b/c", 1, 2, "u-1")),
        (None, WHOLE),
    ],
)
def test_one_snapshot(saved: str | None, found: str) -> None:
    assert is_same_history(saved, found) and is_same_history(found, saved)


@pytest.mark.parametrize(
    ("saved", "found"),
    [
        (WHOLE, fingerprint("user", 7, 1_000, "u-2")),
        (WHOLE, fingerprint("user", 7, 1_001, None)),
        (WHOLE, fingerprint("user", 8, 1_000, None)),
        (WITHOUT_UUID, fingerprint("you", 7, 1_000, "u-1")),
        ("u-2", WHOLE),
        # Nothing is known of both.
        ("u-1", WITHOUT_UUID),
        (fingerprint("a#b", 1, 2, None), fingerprint("a", 1, 2, "u-1")),
    ],
)
def test_two_snapshots(saved: str, found: str) -> None:
    assert not is_same_history(saved, found) and not is_same_history(found, saved)
