from pypaimon.streaming.groups.assigned_slots import Assignment as Assignment
from pypaimon.streaming.groups.group_builder import GroupStreamBuilder as GroupStreamBuilder
from pypaimon.streaming.groups.group_stream import BlockingGroupBatch as BlockingGroupBatch
from pypaimon.streaming.groups.group_stream import GroupBatch as GroupBatch
