"""The data model: one immutable `Trace`, intervals, selections. Knows no file format."""
