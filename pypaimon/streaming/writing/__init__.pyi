from pypaimon.streaming.commit.report import CommitReport as CommitReport
