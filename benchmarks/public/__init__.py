"""The same work by this library, by Flink, by Java, and by other readers of Python."""
