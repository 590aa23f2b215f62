"""Rows as they come: one object that plans, reads ahead and commits."""
