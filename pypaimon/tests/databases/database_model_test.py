"""Random lives of databases: each restart hands out, of each table, what was committed since the one before, once."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.samples import SOAK
from support.tables.databases import Database, keys

pytestmark = [pytest.mark.slow, pytest.mark.soak]

NAMES = ("a", "b", "c")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from(NAMES), st.integers(1, 3)),
        st.tuples(st.sampled_from(["write", "create", "drop", "read"]), st.sampled_from(NAMES), st.just(1)),
        st.tuples(st.just("rename"), st.permutations(NAMES), st.just(0)),
    ),
    min_size=3,
    max_size=14,
)


@settings(deadline=None, max_examples=400 if SOAK else 6, suppress_health_check=list(HealthCheck))
@given(STEPS, st.sampled_from([None, "latest", "earliest", "latest-full"]), st.booleans())
def test_each_row_comes_once(steps: list[tuple[str, str, int]], start: str | None, in_plans: bool) -> None:
    with TemporaryDirectory() as scratch:
        database = Database(Path(scratch))
        position: str | None = None
        number = 0
        unread: dict[str, list[int]] = {}
        for what, name, count in [*steps, ("read", "a", 1)]:
            if what == "create" and name not in unread:
                database.create(name)
                unread[name] = []
            elif what == "write" and name in unread:
                rows = list(range(number, number + count))
                number += count
                database.write(name, *rows)
                unread[name] += rows
            elif what == "drop" and name in unread:
                database.drop(name)
                del unread[name]
            elif what == "rename" and name[0] in unread and name[1] not in unread:
                database.rename(name[0], name[1])
                unread[name[1]] = unread.pop(name[0])
            elif what == "read":
                builder = database.stream()
                if start is not None:
                    builder.with_start(start)  # type: ignore[arg-type]
                if position is not None:
                    builder.with_start(position=position)
                found: dict[str, list[int]] = defaultdict(list)
                with builder.with_end(latest=True).open_sync(batch_bytes=1 if in_plans else 1 << 20) as stream:
                    for batch in stream:
                        found[batch.table] += keys(batch)
                    fresh = position is None and start == "latest"
                    position = stream.position.to_json()
                expected = {} if fresh else {each: rows for each, rows in unread.items() if rows}
                assert {each: sorted(rows) for each, rows in found.items() if rows} == expected
                unread = {each: [] for each in unread}
