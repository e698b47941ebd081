"""`vanidl mcp ROOT...`: answers assistants by the Model Context Protocol, on stdin and stdout."""

from __future__ import annotations

import argparse

from vanidl.errors import UsageError
from vanidl.mcp.known_runs import KnownRuns


def run(options: argparse.Namespace) -> int:
    """Serves until stdin ends; exit status 0.

    Raises:
        UsageError: a root is no folder, or the package mcp is not installed.
    """
    known = KnownRuns(options.roots)
    try:
        from vanidl.mcp.server import server
        from vanidl.mcp.stdin import whole_text_on_stdin
    except ImportError as error:
        raise UsageError(
            f"expected the package mcp, found: {error}; pip install 'vanidl-io[mcp]'"
        ) from error
    with whole_text_on_stdin():
        server(known).run("stdio")
    return 0
