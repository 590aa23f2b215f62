"""Tables as datasets of Ray Data (extra `ray`)."""
