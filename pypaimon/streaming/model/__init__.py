"""Plain values that the whole library speaks of."""
