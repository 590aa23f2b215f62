"""What a stream does next: starts, follow-ups, catch-up, splits; one rule to a module, no clocks, no threads."""
