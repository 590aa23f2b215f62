"""What a caller asks of a stream (`stream_spec`), and what follows from it for a table (`resolve`)."""
