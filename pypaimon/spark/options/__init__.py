"""What `.option(...)` may say."""
