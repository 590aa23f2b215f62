"""Consumer groups: members, their processes, and a simulated world for them."""
