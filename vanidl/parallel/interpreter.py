"""Fresh Python processes that see the same packages and run nothing of the caller's program."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_THREADS = "OPENBLAS_NUM_THREADS"


def command(code: str) -> list[str]:
    """What starts an interpreter that looks for packages where this one does and runs the code."""
    path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


def environment() -> dict[str, str]:
    """Its variables: those of this process, and one thread for linear algebra."""
    return {**os.environ, _THREADS: "1"}


@contextmanager
def without_threads_of_numpy() -> Iterator[None]:
    """Keeps NumPy, where it is imported first inside, from starting a thread for each core.

    They wait busily for linear algebra, which nothing here does.
    """
    given = os.environ.get(_THREADS)
    os.environ.setdefault(_THREADS, "1")
    try:
        yield
    finally:
        if given is None:  # programs that are started later find what the user set
            del os.environ[_THREADS]
