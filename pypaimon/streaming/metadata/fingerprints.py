"""Fingerprints of snapshots, which differ between two snapshots of one id, after a rollback or a re-creation.

A fingerprint has the names that each release of Paimon records (user, identifier and time of the commit) and the `uuid`
of newer ones. Java 1 leaves the `uuid` out when it writes a snapshot again, as a tag or a long-lived changelog.
"""

from __future__ import annotations

_BETWEEN = "#"


def fingerprint(user: str, identifier: int, time_millis: int, uuid: str | None) -> str:
    """The fingerprint of a commit, as positions and consumers save it."""
    commit = f"{user}/{identifier}/{time_millis}"
    return commit if uuid is None else f"{commit}{_BETWEEN}{uuid}"


def is_same_history(saved: str | None, found: str | None) -> bool:
    """Whether two fingerprints are of one snapshot. An unknown fingerprint agrees with any.

    Positions, consumers, shards, groups, targets, checkpoints, tags and rollbacks all use this comparison. A stream
    compares the snapshot before its next one with the table before a row of the next one is handed out.
    """
    if saved is None or found is None or saved == found:
        return True
    commits, uuids = zip(_parts(saved), _parts(found), strict=True)
    return bool(_equal(*commits) if None in uuids else _equal(*uuids))


def _equal(one: str | None, other: str | None) -> bool:
    return one is not None and one == other


def _parts(text: str) -> tuple[str | None, str | None]:
    """The commit and the uuid. A user may have any name; a uuid has no slash."""
    commit, _, uuid = text.rpartition(_BETWEEN)
    if commit and "/" not in uuid:
        return commit, uuid
    # Earlier versions saved either of them alone.
    return (text, None) if "/" in text else (None, text)
