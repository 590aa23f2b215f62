"""What a stream costs: requests, time and memory, beside pypaimon and raw pyarrow, in one run."""
