"""A process that is a member of a group: `process.py WAREHOUSE ID SLOTS LAST SESSION MEMBERS`.

Instead of reading, it counts once the group has `MEMBERS` members: of each slot it hands out the numbers before `LAST`,
each as a line of JSON, and confirms them. It ends when its input is closed.
"""

from __future__ import annotations

import json
import secrets
import select
import sys
from functools import partial

from pypaimon.filesystem.local_file_io import LocalFileIO

from pypaimon.streaming.concurrency.clock import SuspendAwareClock
from pypaimon.streaming.consumers.consumer_manager import ConsumerManager
from pypaimon.streaming.groups.assigned_slots import AssignedSlots
from pypaimon.streaming.groups.group_directory import GroupDirectory
from pypaimon.streaming.groups.group_files import GroupTerms
from pypaimon.streaming.groups.group_view import GroupTimes
from pypaimon.streaming.groups.member import GroupMember
from pypaimon.streaming.groups.membership import MemberThread
from pypaimon.streaming.io.store import Store
from pypaimon.streaming.model.position import Position

at = partial(Position, "t")


def main(warehouse: str, consumer_id: str, slots: int, last: int, session: float, members: int) -> None:
    store, clock, assigned = Store(LocalFileIO()), SuspendAwareClock(), AssignedSlots()
    manager = ConsumerManager(LocalFileIO(), warehouse, store=store)
    directory = GroupDirectory(manager, store, consumer_id, lambda: at(1), at, lambda position: True)
    directory.open()
    times = GroupTimes(session, session / 1.7)
    draw = partial(secrets.token_hex, 4)
    member = GroupMember("", GroupTerms(slots), times, clock, draw, assigned, directory.owner)
    thread = MemberThread(member, directory.answer, clock)
    thread.start()
    begun = False
    while not select.select([sys.stdin], [], [], 0.02)[0]:
        thread.check()
        state, _ = assigned.current()
        begun = begun or (state is not None and len(state.members) == members)
        if not begun:
            continue
        for slot, (since, position) in assigned.readable().items():
            number = position.snapshot
            if number < last and assigned.hand_out({slot: since}, position, at(number + 1), clock()):
                print(json.dumps([slot, since, number]), flush=True)
                assigned.confirm({slot: since}, at(number + 1))
        thread.wake()
    print(json.dumps(thread.stop(60)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6]))
