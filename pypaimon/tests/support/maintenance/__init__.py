"""Maintenance in a simulated world."""
