"""How DLIO ends where a loader fails: all of its ranks, with the loader's line.

DLIO's ranks meet at a barrier behind each step. A rank that raises there waits for the others in
MPI's finalization, and they for it: without an end made here, the benchmark would stay so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import LoadersError
from ..loader.stalls import StalledError
from ..ranks.ending import end_ranks


@contextmanager
def ending_all_ranks() -> Iterator[None]:
    """Whatever a loader refuses inside is written as one line, and ends all ranks of MPI.

    Raises:
        LoadersError: There is one rank only, or all fail: DLIO shows it as it likes.
    """
    try:
        yield
    except LoadersError as error:
        why = " ".join(str(error).split())
        sys.stderr.write(f"vanidl_loaders: {why}\n")
        sys.stderr.flush()
        end_ranks(error.exit_status, why)
        if isinstance(error, StalledError):  # what hangs would hold up the interpreter's end
            os._exit(error.exit_status)
        raise
