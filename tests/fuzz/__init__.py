"""Damaged logs by the thousand: `python -m tests.fuzz` prints what became of each."""
