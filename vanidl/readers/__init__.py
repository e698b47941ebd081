"""Readers of logs and traces: a folder for each format; `registry` lists them."""
