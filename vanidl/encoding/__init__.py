"""Bytes of no format in particular: JSON, protobuf, inflated text, checksums, budgets."""
