"""Ranks that work together: MPI, torch.distributed, or one alone."""
