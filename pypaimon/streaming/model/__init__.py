"""Plain values that all packages use: plans, positions, row kinds, types, time zones."""
