"""Results and operations as files for other programs: one module a format, listed in registry."""
