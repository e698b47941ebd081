"""Darshan logs: headers, DXT segments, counters, names."""
