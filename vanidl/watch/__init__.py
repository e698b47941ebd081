"""Live progress of a running job, on the terminal and as OpenMetrics text."""
