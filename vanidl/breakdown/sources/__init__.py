"""Sources of evidence for the breakdown: each bounds what it knows, and nothing else."""
