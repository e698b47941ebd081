"""`vanidl view RUN`: the report in a browser, with every operation of the run behind it."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from contextlib import suppress
from pathlib import Path

from vanidl.commands.inputs import open_from
from vanidl.readers import discover
from vanidl.report.html import page_of, page_with
from vanidl.report.page import render_page
from vanidl.serve import server
from vanidl.serve.server import open_server
from vanidl.serve.store import write_store
from vanidl.viewer.content import SERVED

_NOT_OF_THE_RUN = {"command", "port", "open", "dask", "workers", "run"}


def run(options: argparse.Namespace) -> int:
    """Serves the page until it is interrupted; exit status 0."""
    # Every file that the run is read from; data files are looked at by name alone.
    places = [options.run, *(text.rpartition(":")[0] or text for text in options.steps)]
    files: list[Path] = []
    for path in (Path(place).absolute() for place in places):
        if path.exists():
            listed = discover.find(path)
            files += [*listed.run_records, *(p for some in listed.files.values() for p in some)]
    # All options that change what the page says, and where the run lies.
    chosen = {k: v for k, v in vars(options).items() if k not in _NOT_OF_THE_RUN}
    chosen["names"] = options.names is not None
    words = f"{Path(options.run).absolute()} {sorted(chosen.items())}"
    # Page and slices as they were left by an earlier call, or made now and left for later.
    folder = server.default_folder()
    key = server.compute_key(files, words)
    kept = server.open_kept(folder, key)
    if kept is None:
        opened = open_from(options)
        text = render_page(page_with(page_of(opened), opened, SERVED))
        content = text.encode("utf-8", "backslashreplace")
        kept = server.keep(folder, key, content, lambda place: write_store(opened, place))
    page, store = kept
    with open_server(page, store, options.port) as (site, address):
        sys.stdout.write(f"{address}\nCtrl-C ends it.\n")
        sys.stdout.flush()
        if options.open:
            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            site.serve_forever()
    return 0
