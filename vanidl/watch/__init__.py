"""A run that goes on: what it has recorded so far, on the terminal and as OpenMetrics text."""
