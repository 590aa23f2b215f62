"""The settings of a stream: the options of its table and the calls of its builder, as checked values."""
