"""What a stream costs: requests, time and memory, compared with pypaimon and raw pyarrow in one run."""
