"""Fresh Python processes that see the same packages and run nothing of the caller's program."""

from __future__ import annotations

import os
import sys


def command(code: str) -> list[str]:
    """What starts an interpreter that looks for packages where this one does and runs the code."""
    path = [entry or os.getcwd() for entry in sys.path]  # noqa: PTH109
    return [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


def environment() -> dict[str, str]:
    """Its variables: those of this process, and one thread for linear algebra."""
    return {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
