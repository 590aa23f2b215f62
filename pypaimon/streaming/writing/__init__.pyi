from pypaimon.streaming.commit.request import CommitReport as CommitReport
