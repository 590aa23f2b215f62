"""What a stream is told: the options of its table and the calls of its builder, as checked values."""
