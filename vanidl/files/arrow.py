"""pyarrow where it is needed: said to be missing in one line, and safe where memory is limited."""

from __future__ import annotations

from vanidl.errors import package_missing
from vanidl.parallel.supervised import address_space_is_limited


def require_arrow(what: str) -> None:
    """Nothing where pyarrow can be imported.

    Where an address space is limited (ulimit -v) and used up, its own allocators crash the
    process more often than not; with that of the system it mostly raises MemoryError.

    Args:
        what: the command or option, and its verb: "a survey needs".

    Raises:
        UsageError: it cannot be imported.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise package_missing(error, what, "pyarrow", "parquet") from error
    if address_space_is_limited():
        pyarrow.set_memory_pool(pyarrow.system_memory_pool())
