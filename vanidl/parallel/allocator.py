"""How much freed memory a process keeps for itself instead of giving it back at once."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MOST_ARENAS = -1, -3, -8  # of glibc's mallopt
_LARGEST_KEPT = 16 << 20
_MOST_KEPT = 64 << 20


def keep_freed_memory() -> None:
    """Keeps up to 64 MB of what is freed, and all arrays of less than 16 MB among it.

    Else every passing array of a few megabytes comes from the system anew, page by page and
    cleared: of thousands of logs that takes a tenth of the time. All threads share what is kept:
    what each would keep for itself is a tenth of the memory. Without effect where the C
    library is another one than glibc, or the user set its limits (MALLOC_..._THRESHOLD_).
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    with suppress(AttributeError, OSError):  # no such function, no such library
        library = ctypes.CDLL(None)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)
        library.mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
        library.mallopt(_MOST_ARENAS, 1)
