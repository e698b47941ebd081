"""pyarrow where it is needed: said to be missing in one line, and with the system's allocator."""

from __future__ import annotations

from importlib.util import find_spec

from vanidl.errors import package_missing


def require_arrow(what: str) -> None:
    """Nothing where pyarrow can be imported.

    It allocates as the system does. Its own allocators keep what was let go: a survey of 100,000
    empty logs took 289 MB with them and 235 MB without. And where an address space is limited
    (ulimit -v) and used up, they crash the process more often than not; that of the system mostly
    raises MemoryError.

    Args:
        what: the command or option, and its verb: "a survey needs".

    Raises:
        UsageError: it cannot be imported.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise package_missing(error, what, "pyarrow", "parquet") from error
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())


def has_arrow(what: str) -> bool:
    """Whether pyarrow is installed, for what can do without; then as `require_arrow`.

    Raises:
        UsageError: it is installed, and cannot be imported.
    """
    if find_spec("pyarrow") is None:
        return False
    require_arrow(what)
    return True


def release_memory() -> None:
    """Gives back what Arrow holds for later: after large columns, which else count as the peak."""
    import pyarrow

    pyarrow.default_memory_pool().release_unused()
