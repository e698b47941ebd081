"""`vanidl mcp ROOT...`: answers assistants by the Model Context Protocol, on stdin and stdout."""

from __future__ import annotations

import argparse

from vanidl.errors import UsageError
from vanidl.mcp.answers import KnownRuns


def run(options: argparse.Namespace) -> int:
    """Serves until stdin ends; exit status 0.

    Raises:
        UsageError: a root is no folder, or the package mcp is not installed.
    """
    known = KnownRuns(options.roots)
    try:
        from vanidl.mcp.server import make_server, whole_text_on_stdin
    except ImportError as error:
        raise UsageError(
            f"expected the package mcp, found: {error}; pip install 'vanidl-io[mcp]'"
        ) from error
    with whole_text_on_stdin():
        make_server(known).run("stdio")
    return 0
