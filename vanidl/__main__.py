"""`python -m vanidl`."""

from vanidl.cli import entry

entry()
