"""Threads, time and processes: what is shared by everything that waits."""
