"""Processes and stores that die, hang or are interrupted at a chosen step."""
