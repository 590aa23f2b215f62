from pypaimon.streaming.compaction.materialization import materialize_deletion_vectors as materialize_deletion_vectors
from pypaimon.streaming.compaction.partition_rescale import rescale as rescale
from pypaimon.streaming.compaction.reports import CompactedBucket as CompactedBucket
from pypaimon.streaming.compaction.reports import CompactionReport as CompactionReport
from pypaimon.streaming.compaction.reports import FileCount as FileCount
from pypaimon.streaming.compaction.reports import SkippedPartition as SkippedPartition
from pypaimon.streaming.compaction.table_files import BucketFiles as BucketFiles
from pypaimon.streaming.compaction.table_files import TableFiles as TableFiles
