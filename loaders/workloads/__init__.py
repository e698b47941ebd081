"""Workloads: synthetic samples with the papers' shapes and statistics, and a small model each."""
