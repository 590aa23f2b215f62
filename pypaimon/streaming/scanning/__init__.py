"""A stream's scan: what drives the planner, and hands out plans."""
