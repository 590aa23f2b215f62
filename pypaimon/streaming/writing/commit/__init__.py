"""From files to a snapshot, exactly once per commit user and commit identifier."""
