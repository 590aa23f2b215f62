"""Consumer groups: several processes share a table, as the members of a Kafka group share the partitions of a topic.

A Kafka group has a coordinator on a broker. Here there is only the store of the table. Members agree by creating files
in `consumer/group-<id>/<lifetime>/`, and by nothing else. What follows is the whole protocol.

The words
    *slot*: a part of the table (some buckets, or some files), the unit that is assigned; Kafka's partition.
    *generation*: number of a state of the group. A *state* lists the members and the owner of each slot. It never
    changes; the next generation follows it, and the highest one counts.
    *member id*: drawn each time a process joins. *member name*: given by the user, stays over restarts; Kafka's
    `group.instance.id`.
    *record*: what a member says of itself. It never changes either; the next *version* follows it, and the last counts.
    *lifetime*: a group that was ended from outside begins again in a directory of its own.
    *barrier*: an overwrite, which may move rows between slots. A member reads it only once all slots have reached it;
    the state says which barrier was passed last (`GroupState.passed`).

What the store has to do
    Create a file only if its name is free (`If-None-Match: *`, `O_EXCL`), list what was created before, and, for the
    pin alone, replace a file only if it has not changed. Nothing else: no rename, no lock, no clock that agrees with
    another one, no order between two requests. A request that timed out may have been carried out, or may be carried
    out later. Every step is therefore safe to repeat and safe to arrive late: by then a file of that name exists, or
    no member looks at it any more.

Heartbeats
    A member creates the next version of its record twice in a session (`member-<id>-<version>`, see `MemberRecord`). It
    contains the status, the generation that the member acts on, the confirmed position of each slot it has (so that a
    heartbeat saves progress), the slots it has released, and a barrier that it waits at. Confirmed rows count as saved
    once the version that says so exists. A heartbeat is also a lease: for three quarters of a session after it was sent
    the member may hand out plans. A member that cannot reach the store stops handing out before others can fence it.

States of a member
    joining -> active -> left, or fenced at any time. A joining member has a record and waits for a state that lists it.
    A member that leaves says so in its last version. A member that has sent no heartbeat for a session (its own,
    which its record contains) is fenced by another one. When it notices, it joins again with a new id, unless a newer
    process with its name has fenced it.

The coordinator
    Every member lists the group twice in a session, more often after a change, and knows the order of the members from
    the last state. The first one that is not silent coordinates: it fences silent members and creates the next state.
    If it leaves work undone, the next one does it after an eighth of a session, and so on. There is no election, and
    two coordinators do no harm: both compute the next state with the same pure function, only one of them can create
    `state-<generation>`, and both adopt that one. A state or a fencing that is based on an old listing loses the same
    race, and is then computed again.

Assignment and revocation
    A state that gives a slot to another member only *revokes* it: the owner keeps it and finishes. It hands out nothing
    more, waits until everything is confirmed (or `max_hold` is over), and releases the slot in its next version. The
    state after that names the new owner, which begins where that version says. So a slot has one owner at a time, and
    no saved row is read twice. Rows that were handed out and not saved are: at least once, as everywhere. The
    generation in which an owner got a slot identifies this ownership, and serves targets as a fencing token.

Fencing
    To fence a member is to create the next version of its record, with status fenced and the progress of the last one.
    The member may be alive and create that version itself: one of the two succeeds, and both know which. If the member
    wins, it lives. If the other one wins, nothing the member confirms later can be saved; it learns that from its next
    heartbeat, whose name is taken.

The start and the pin
    The snapshots that the slots still need are kept by the *retention pin*, a consumer file in Java's format, so that
    expiry in Java respects it. Slots are assigned only after the pin was written and the start was found to exist after
    that. The coordinator moves the pin up to the slowest slot. If the pin is deleted or replaced (a reset, Java's
    procedures, `consumer.expiration-time`), the group ends for all members. The next ones start a new lifetime at the
    snapshot that the new pin names, or at their configured start.

What a crash leaves
    Of a member: a record without new versions. The member is fenced after a session, and its slots continue at the
    saved positions. Of a coordinator: a fenced record without a new state, or a state without a moved pin. The next
    coordinator finds both and completes them. Between the pin and the first assignment: a group that has not begun; the
    next member checks the start again.

    A process that was suspended for hours wakes up, finds its lease over, and hands out nothing before a heartbeat
    succeeds. A heartbeat that was under way when its member was fenced arrives late, and finds its name taken. The name
    stays taken because the last version of an ended member is deleted only after a day.

How to follow a heartbeat to an assignment
    `member.py` sends heartbeats and watches; `group_view.py` lists and notices missing heartbeats; `coordinator.py`
    fences and writes states; `rebalance.py` computes them; `assigned_slots.py` adopts them for the reader. The contents
    of the files are in `group_files.py`. `group_requests.py` is the boundary to the store; `group_directory.py` and
    `MemberThread` (`membership.py`) are on its other side, or a simulation in tests. A stream uses all this from
    above: `group_stream.py` opens it and hands out batches, `group_reader.py` reads ahead, and
    `membership.py` is this process as a member. `slot_cursor.py` reads the slots at one position, by a stream with a
    `SlotSet`, whose files `planning/selection.py` keeps.
"""

from pypaimon.streaming.lazy_imports import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
