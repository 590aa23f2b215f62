"""Plans that arrive within an interval are one commit of a Paimon table, with the changes of single commits."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from pypaimon.streaming import (
    BlockingBatchStream,
    ConsumerManager,
    PaimonTarget,
    Replication,
    StreamConfigError,
    StreamReadBuilder,
    copy_stream,
    copy_stream_async,
    replicate,
    replicate_async,
)
from support.samples import SOAK, examples
from support.tables.copied_table import batches, copying
from support.tables.handles import write_with
from support.tables.streamed_table import Table
from support.tables.written_tables import changes, key_value_table, rows
from support.waits import until

pytestmark = [pytest.mark.slow, pytest.mark.soak]

LONG = 1e6
Commit = tuple[bool, dict[int, str | None]]
"""Whether it is an overwrite; the value of each key that it changes, or None for a delete."""


def source_of(home: Path, history: list[Commit], keyed: bool = True, **options: str) -> Table:
    """A table of some commits, whose changes name the former rows."""
    of_keys = {"changelog_producer": "input"} if keyed else {}
    source = key_value_table(home, "source", keyed=keyed, **of_keys, **options)
    extend(source, history)
    return source


def extend(source: Table, history: list[Commit]) -> None:
    keyed = source.handle().is_primary_key_table
    state: dict[int, str] = dict(source.rows()) if keyed else {}
    for is_overwrite, changed in history:
        builder = source.writer("maker")
        given: list[tuple[str, int, str]] = []
        if is_overwrite:
            builder.with_overwrite()
            state = {}
        for key, value in changed.items():
            before = state.pop(key, None)
            if before is not None:
                given.append(("-D" if value is None else "-U", key, before))
            if value is not None:
                given.append(("+I" if before is None else "+U", key, value))
                state[key] = value
        with builder.open_sync() as writer:
            if keyed and given:
                writer.write(changes(*given))
            elif given:
                writer.write(rows(*[key for _, key, _ in given]))
            if given or is_overwrite:
                writer.commit()


def copy_of(source: Table, name: str = "copy", *, keyed: bool = True, **options: str) -> Table:
    of_keys = {"changelog_producer": "input"} if keyed else {}
    return key_value_table(Path(), name, keyed=keyed, catalog=source.catalog, **of_keys, **options)


def every_plan(source: Table) -> StreamReadBuilder:
    return source.builder().with_start(snapshot_id=1, full=True).with_catch_up("replay").with_end(latest=True)


def kinds_of(table: Table) -> list[str]:
    return [table.snapshot(number)["commitKind"] for number in table.ids()]


def changes_of(table: Table) -> dict[int, list[tuple[str, str]]]:
    """The changelog of each key since the last overwrite, in order."""
    found = defaultdict[int, list[tuple[str, str]]](list)
    overwrites = [number for number in table.ids() if table.snapshot(number)["commitKind"] == "OVERWRITE"]
    builder = table.builder().with_start(snapshot_id=max(overwrites, default=0) + 1).with_catch_up("replay")
    for batch in batches(builder.with_end(latest=True)):
        for row in batch.data.to_pylist():
            found[row["k"]].append((row["_row_kind"], row["v"]))
    return found


COMMITS = st.lists(
    st.tuples(
        st.integers(0, 5).map(lambda drawn: drawn == 0),
        st.dictionaries(st.integers(0, 3), st.one_of(st.none(), st.sampled_from("abc")), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=5,
)


def with_restart(home: Path, before: list[Commit], lost: list[Commit], after: list[Commit]) -> tuple[Table, list[Any]]:
    """A table, and the batches of a stream that starts again with the state because some commits have expired."""
    source = source_of(home, [(False, {9: "first"}), *before])
    plans = batches(copying(every_plan(source), None))
    extend(source, [*lost, (False, {8: "lost"}), (False, {9: "kept"})])
    source.expire(source.latest())
    builder = source.builder().with_catch_up("replay").with_end(latest=True).with_on_expired("full")
    plans += batches(copying(builder, plans[-1].plan_after))
    extend(source, after)
    return source, plans + batches(copying(builder, plans[-1].plan_after))


@settings(max_examples=examples(16), deadline=None, suppress_health_check=list(HealthCheck))
@given(before=COMMITS, lost=COMMITS, after=COMMITS, drawn=st.data())
def test_shared_commits_hold_what_single_commits_hold(
    before: list[Commit], lost: list[Commit], after: list[Commit], drawn: st.DataObject
) -> None:
    """A state that replaces rows is a commit without later changes; every other plan joins the commit before it."""
    with TemporaryDirectory() as home:
        source, plans = with_restart(Path(home), before, lost, after)
        alone, together = copy_of(source, "alone"), copy_of(source, "together")
        target = PaimonTarget(alone.handle())
        for batch in plans:
            target.apply(batch)
        target.close()
        expected, begins, restarted = 0, True, False
        target = PaimonTarget(together.handle())
        with target._plans.sharing():
            for number, batch in enumerate(plans):
                is_restart = batch.begins_state and number > 0
                expected += begins or is_restart or restarted
                target.apply(batch)
                restarted, begins = is_restart, drawn.draw(st.booleans())
                if begins:
                    target._plans.flush()
            target._plans.flush()
        assert target.load_position() == plans[-1].plan_after
        target.close()
        assert together.rows() == alone.rows() == source.rows()
        assert len(together.ids()) == expected
        assert kinds_of(together).count("OVERWRITE") == kinds_of(alone).count("OVERWRITE") == 1
        assert changes_of(together) == changes_of(alone)


def test_kinds_of_one_key_stay_in_order_within_a_commit(tmp_path: Path) -> None:
    source = source_of(tmp_path, [(False, {1: value}) for value in ("a", "b", None, "c", "d")])
    copy = copy_of(source)
    replicate(every_plan(source), PaimonTarget(copy.handle()), commit_interval=LONG)
    assert len(copy.ids()) == 1
    assert changes_of(copy)[1] == [
        ("+I", "a"), ("-U", "a"), ("+U", "b"), ("-D", "b"), ("+I", "c"), ("-U", "c"), ("+U", "d"),
    ]  # fmt: skip
    assert copy.rows() == source.rows()


def by_replicate(source: StreamReadBuilder, copy: Table, seconds: float) -> None:
    position = replicate(source, target := PaimonTarget(copy.handle()), commit_interval=seconds)
    assert position == target.load_position()


def by_replicate_async(source: StreamReadBuilder, copy: Table, seconds: float) -> None:
    asyncio.run(replicate_async(source, PaimonTarget(copy.handle()), commit_interval=seconds))


def by_a_service(source: StreamReadBuilder, copy: Table, seconds: float) -> None:
    Replication(source, PaimonTarget(copy.handle()), commit_interval=seconds).run()


def by_copy_stream_sync(source: StreamReadBuilder, copy: Table, seconds: float) -> None:
    with copy.writer("copier").open_sync() as writer:
        position = copy_stream(source, writer, commit_interval=seconds)
        assert position == writer.position


def by_copy_stream(source: StreamReadBuilder, copy: Table, seconds: float) -> None:
    async def run() -> None:
        async with copy.writer("copier").open() as writer:
            await copy_stream_async(source, writer, commit_interval=seconds)

    asyncio.run(run())


CALLS = [by_replicate, by_replicate_async, by_a_service, by_copy_stream_sync, by_copy_stream]
Call = Callable[[StreamReadBuilder, Table, float], None]


@pytest.mark.parametrize(
    ("copied", "keyed", "seconds", "commits"),
    [
        (call, keyed, seconds, commits)
        for call in CALLS
        for keyed in (True, False)
        for seconds, commits in ((LONG, 1), (0.0, 4))
        if SOAK or call is by_replicate or (keyed and commits == 1)
    ],
)
def test_the_interval_bounds_a_commit(tmp_path: Path, copied: Call, keyed: bool, seconds: float, commits: int) -> None:
    source = source_of(tmp_path, [(False, {number: "a", 50: f"{number}"}) for number in range(4)], keyed)
    copy = copy_of(source, keyed=keyed)
    for _ in range(2):
        copied(every_plan(source), copy, seconds)
        assert copy.rows() == source.rows()
        assert len(copy.ids()) == commits


@pytest.mark.parametrize("copied", CALLS)
def test_a_copy_waits_for_plans_until_the_interval_has_passed(tmp_path: Path, copied: Call) -> None:
    """Commits that come one after the other are one snapshot of the copy, which is not later than the interval."""
    source = source_of(tmp_path, [(False, {0: "first"})])
    copy = copy_of(source)
    ending = source.builder().with_end(snapshot_id=7).with_poll_interval_ms(50)
    copying = threading.Thread(target=copied, args=(ending, copy, 3.0))
    copying.start()
    with source.writer("later").open_sync() as writer:
        for number in range(1, 5):
            writer.write(changes(("+I", number, "later")))
            writer.commit()
            time.sleep(0.05)
        until(copy.ids)
        assert len(copy.ids()) == 1 and len(copy.rows()) == 5
        # The stream still waits for its last two plans.
        assert copying.is_alive()
        for number in range(5, 7):
            writer.write(changes(("+I", number, "later")))
            writer.commit()
    copying.join(60)
    assert not copying.is_alive()
    assert len(copy.ids()) == 2 and copy.rows() == source.rows()


def test_a_state_that_replaces_rows_takes_no_changes_with_it(tmp_path: Path) -> None:
    source, plans = with_restart(tmp_path, [(False, {1: "a"})], [(False, {2: "b"})], [(False, {3: "c"})])
    copy = copy_of(source)
    target = PaimonTarget(copy.handle())
    with target._plans.sharing():
        for batch in plans:
            target.apply(batch)
        target._plans.flush()
    target.close()
    assert kinds_of(copy) == ["APPEND", "OVERWRITE", "APPEND"]
    assert changes_of(copy) == {3: [("+I", "c")]}
    assert copy.rows() == source.rows()


def test_a_state_that_limits_cut_replaces_rows_in_one_commit(tmp_path: Path) -> None:
    source = source_of(tmp_path, [(False, dict.fromkeys(range(8), "a"))])
    copy = copy_of(source)
    copy.commit([77])
    target = PaimonTarget(copy.handle(), replace=True)
    builder = every_plan(source).with_limits(max_splits=1)
    assert len(batches(builder)) > 1
    replicate(builder, target, commit_interval=LONG)
    assert kinds_of(copy) == ["APPEND", "OVERWRITE"] and copy.rows() == source.rows()


def test_plans_of_two_schemas_share_no_commit(tmp_path: Path) -> None:
    source = source_of(tmp_path, [(False, {1: "a"}), (False, {2: "b"})])
    copy = copy_of(source)
    for table in (source, copy):
        table.catalog.alter_table(table.name, [SchemaChange.add_column("more", AtomicType("INT"))], False)
    write_with(source.writer("later"), changes(("+I", 3, "c")))
    builder = every_plan(source).with_on_schema_change("follow")
    replicate(builder, PaimonTarget(copy.handle()), commit_interval=LONG)
    assert [row[0] for row in copy.rows()] == [1, 2, 3]
    assert len(copy.ids()) <= 2


def test_a_table_that_orders_records_by_snapshots_takes_a_commit_for_each_plan(tmp_path: Path) -> None:
    """Its writer holds the rows of a commit in memory, which several plans might not fit into."""
    source = source_of(tmp_path, [(False, {1: value}) for value in "abc"])
    copy = copy_of(source, **{"sequence.snapshot-ordering": "true"})
    replicate(every_plan(source), PaimonTarget(copy.handle()), commit_interval=LONG)
    assert len(copy.ids()) == 3 and copy.rows() == source.rows()


@pytest.mark.parametrize("is_builder", [True, False], ids=["builder", "stream"])
def test_a_consumer_does_not_pass_what_is_not_committed(tmp_path: Path, is_builder: bool) -> None:
    source = source_of(tmp_path, [(False, {number: "a"}) for number in range(4)])
    copy, seen = copy_of(source), list[Any]()
    handle = source.handle()
    consumers = ConsumerManager(handle.file_io, str(handle.table_path))
    builder = every_plan(source).with_consumer_id("copy", ignore_progress=True)
    with copy.writer("copier").open_sync() as writer:
        if not is_builder:
            with builder.open_sync() as stream, pytest.raises(StreamConfigError, match="consumer of the open stream"):
                copy_stream(stream, writer, commit_interval=LONG)
            assert not copy.ids() and consumers.consumers()["copy"] == 1
            return
        commit = writer._opened.commit

        def committed(*arguments: Any, **given: Any) -> Any:
            seen.append(consumers.consumers().get("copy"))
            return commit(*arguments, **given)

        writer._opened.commit = committed  # type: ignore[method-assign]
        position = copy_stream(builder, writer, commit_interval=LONG)
        assert position is not None
        assert set(seen) <= {None, 1} and consumers.consumers()["copy"] == position.snapshot


def test_a_stream_that_is_stopped_commits_what_it_has_applied(tmp_path: Path) -> None:
    source = source_of(tmp_path, [(False, {number: "a"}) for number in range(3)])
    copy = copy_of(source)

    def stop_soon(stream: BlockingBatchStream) -> None:
        threading.Timer(1.0, stream.stop).start()

    builder = source.builder().with_poll_interval_ms(10)
    with copy.writer("copier").open_sync() as writer:
        begun = time.monotonic()
        copy_stream(builder, writer, on_open=stop_soon, commit_interval=LONG)
        assert time.monotonic() - begun < 60
    assert len(copy.ids()) == 1 and copy.rows() == source.rows()


class UnreadableError(RuntimeError):
    """An error of the caller."""


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
def test_an_error_takes_back_plans_that_are_not_committed(tmp_path: Path, is_async: bool) -> None:
    source = source_of(tmp_path, [(False, {number: "a"}) for number in range(4)])
    copy = copy_of(source)
    target: Any = PaimonTarget(copy.handle())
    apply, calls = target.apply, 0

    def failing(batch: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise UnreadableError
        apply(batch)

    target.apply = failing
    for _ in range(2):
        if calls:
            assert not copy.ids() and not copy.data_files()
        try:
            if is_async:
                asyncio.run(replicate_async(every_plan(source), target, commit_interval=LONG))
            else:
                replicate(every_plan(source), target, commit_interval=LONG)
        except UnreadableError:
            continue
    assert len(copy.ids()) == 1 and copy.rows() == source.rows()


@pytest.mark.parametrize("is_cancelled", [False, True], ids=["failed", "cancelled"])
def test_files_are_taken_back_off_the_event_loop(tmp_path: Path, is_cancelled: bool) -> None:
    """Deleting them waits for the store."""
    source = source_of(tmp_path, [(False, {number: "a"}) for number in range(4)])
    copy = copy_of(source)
    target: Any = PaimonTarget(copy.handle())
    apply, roll_back = target.apply, target._plans._table.roll_back
    calls, deleting = 0, list[threading.Thread]()
    applied, cancelled = threading.Event(), threading.Event()

    def failing(batch: Any) -> None:
        nonlocal calls
        calls += 1
        apply(batch)
        if calls == 2:
            applied.set()
            if not is_cancelled:
                raise UnreadableError
            # Else it may be done before it is cancelled.
            assert cancelled.wait(60)

    def noted() -> None:
        deleting.append(threading.current_thread())
        roll_back()

    target.apply, target._plans._table.roll_back = failing, noted

    async def copied() -> threading.Thread:
        copying = asyncio.ensure_future(replicate_async(every_plan(source), target, commit_interval=LONG))
        await asyncio.to_thread(applied.wait)
        if is_cancelled:
            copying.cancel()
            # The copy learns of it in this turn of the loop.
            await asyncio.sleep(0)
            cancelled.set()
        with pytest.raises(asyncio.CancelledError if is_cancelled else UnreadableError):
            await copying
        return threading.current_thread()

    loop = asyncio.run(copied())
    assert deleting and loop not in deleting
    assert not copy.ids() and not copy.data_files()
