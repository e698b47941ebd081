"""What the command's threads are doing, sampled from outside: nothing happens in the program.

The sampler is a library in C, compiled with the tracer; where it is not here, or the system
forbids to look into other processes, states are left out, and the record says so.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vanidl.record.processes import Seen

FOLDER = "states"
SUFFIX = ".states"
LIBRARY = Path(__file__).with_name("libvanidl_sampler.so")
PERIOD_US = 5000
SHARE = 0.01
"""Of one core, that sampling may take: with many threads, or slow calls, samples come rarer."""

_END_S = 2.0
_NOT_HERE = (
    "What threads were doing was not sampled: the sampler was not compiled when vanidl was "
    "installed."
)
_NOT_MADE = "What threads were doing was not sampled: no file for it could be made."


class Sampler:
    """One sampler, writing into a folder of the run until `stop`."""

    def __init__(self, run: Path) -> None:
        self.remark = ""  # a sentence: why there are no samples, "" where there are
        self._thread: threading.Thread | None = None
        self._added: set[tuple[int, int]] = set()
        self._library = _load_library()
        if self._library is None:
            self.remark = _NOT_HERE
            return
        folder = run / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{os.uname().nodename}-{os.getpid()}{SUFFIX}"
        self._handle = self._library.vs_open(os.fsencode(path), PERIOD_US, SHARE)
        if not self._handle:
            self.remark = _NOT_MADE
            return
        self._thread = threading.Thread(
            target=self._library.vs_run, args=(self._handle,), name="vanidl-sampler", daemon=True
        )
        self._thread.start()

    def add(self, seen: Iterable[Seen]) -> None:
        """Samples the threads of these processes from now on, of each once."""
        if self._thread is None or self._library is None:
            return
        for each in seen:
            if not each.gone and (each.pid, each.started) not in self._added:
                self._added.add((each.pid, each.started))
                self._library.vs_add(self._handle, each.pid, each.parent_pid)

    def stop(self) -> None:
        """Takes no more samples, as the disk is about to be full."""
        if self._thread is not None and self._library is not None:
            self._library.vs_stop(self._handle)

    def close(self) -> None:
        """Ends the file."""
        thread, self._thread = self._thread, None
        if thread is None or self._library is None:
            return
        self._library.vs_stop(self._handle)
        thread.join(_END_S)
        if not thread.is_alive():  # else storage hangs: the file stays as it is
            self._library.vs_close(self._handle)


@contextmanager
def sampling(run: Path, *, wanted: bool) -> Iterator[Sampler | None]:
    """A sampler for the time of the block; None where none is wanted."""
    sampler = Sampler(run) if wanted else None
    try:
        yield sampler
    finally:
        if sampler is not None:
            sampler.close()


def _load_library() -> ctypes.CDLL | None:
    if sys.platform != "linux" or not LIBRARY.is_file():
        return None
    library = ctypes.CDLL(str(LIBRARY))
    library.vs_open.restype = ctypes.c_void_p
    library.vs_open.argtypes = ctypes.c_char_p, ctypes.c_long, ctypes.c_double
    library.vs_add.argtypes = ctypes.c_void_p, ctypes.c_int, ctypes.c_int
    for function in (library.vs_run, library.vs_stop, library.vs_close):
        function.argtypes = (ctypes.c_void_p,)
        function.restype = None
    return library
