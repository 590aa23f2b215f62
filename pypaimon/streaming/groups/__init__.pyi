from pypaimon.streaming.groups.assigned_slots import Assignment as Assignment
from pypaimon.streaming.groups.group_stream import BlockingGroupBatch as BlockingGroupBatch
from pypaimon.streaming.groups.group_stream import GroupBatch as GroupBatch
from pypaimon.streaming.groups.group_stream import GroupStreamBuilder as GroupStreamBuilder
