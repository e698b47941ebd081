"""A progress bar where a person looks on: in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from vanidl.readers.format import Progress

_DELAY_S = 1.0  # what is quicker needs no bar


@contextmanager
def bar_in_notebooks(given: Progress | None) -> Iterator[Progress | None]:
    """`given`, or in a notebook with tqdm a bar of what is being read; None elsewhere."""
    if given is not None or "ipykernel" not in sys.modules:
        yield given
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        yield None
        return
    with tqdm(delay=_DELAY_S, leave=False) as bar:

        def progress(what: str, done: int, count: int) -> None:
            bar.set_description(what)
            bar.total, bar.n = count, done
            bar.refresh()

        yield progress
