"""A small training run, and its profile."""
