"""Helpers of the tests, one folder to a subject."""
