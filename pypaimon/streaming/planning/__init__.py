"""Planning: snapshots to plans, one rule to a module. `planner` describes the way of a snapshot."""
