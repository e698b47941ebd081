"""Readers: one module a format, each turning one file into a piece (see `pieces`)."""
