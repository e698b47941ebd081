"""Faults planted one at a time: what of them the tests see. `python -m tests.faults` runs it."""
