"""Reading: the splits of a plan to Arrow rows with their row kinds."""
