"""File systems, object stores and clocks under a test's control."""
