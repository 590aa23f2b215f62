"""What is taken from pypaimon."""
