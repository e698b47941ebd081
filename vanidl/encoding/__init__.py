"""Streams of JSON and protobuf, and checksums: what several formats are written in."""
