"""What a stream does next: starts, follow-ups, catch-up, splits; one rule to a room, no clocks, no threads."""
