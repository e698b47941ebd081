"""How a rank ends: with all others, each with its own line, and never after its launcher."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from .world import MPI_RANK

_POLL_S = 1.0  # between two looks at the launcher
_TO_CLEAR_UP_S = 10.0  # before a rank is killed


def end_ranks(status: int, why: str, *, within_s: float = 2.0) -> None:
    """Ends the other ranks of a job, which would wait for this one: call it before exiting.

    Where all ranks fail for the same reason each says so itself: they are given time for that.

    Args:
        status: Exit status, not 0.
        why: What torchrun is to show as the reason.
        within_s: Longest wait for the others.
    """
    if "mpi4py.MPI" in sys.modules:
        _end_mpi(status, within_s)
    elif is_launched():
        _tell_torchrun(why, status, os.environ)
        with suppress(RuntimeError, ValueError, KeyError):  # nobody listens there any more
            _wait_for_others(os.environ, within_s)


def is_launched() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def find_launcher() -> str | None:
    """What started this process as a rank."""
    if is_launched():
        return "torchrun"
    return "mpiexec" if any(name in os.environ for name in MPI_RANK) else None


def keep_status() -> None:
    """Has torchrun's SIGTERM change no exit status that is decided.

    It comes as soon as one rank has ended, and the others may be about to.
    """
    if is_launched():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def end_with_launcher() -> None:
    """Has this process end when torchrun does, however that ends; mpiexec sees to its ranks itself.

    It is asked to end, so that it can clear up, and killed where it does not: a rank that waits
    for another one in a library runs no handler.
    """
    if is_launched():
        launcher = os.getppid()
        threading.Thread(target=_end_with, args=(launcher,), name="launcher", daemon=True).start()


def _end_with(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_TO_CLEAR_UP_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _end_mpi(status: int, within_s: float) -> None:
    from mpi4py import MPI

    if MPI.Is_finalized() or MPI.COMM_WORLD.Get_size() == 1:
        return
    sys.stderr.flush()
    # All come here where all fail for the same reason; who does not come is aborted.
    arrived, end = MPI.COMM_WORLD.Ibarrier(), time.monotonic() + within_s
    while not arrived.Test():
        if time.monotonic() > end:
            MPI.COMM_WORLD.Abort(status)
        time.sleep(0.01)


def _tell_torchrun(why: str, status: int, environment: Mapping[str, str]) -> None:
    """Writes the reason where torchrun looks for it, or it would ask for a traceback."""
    path = environment.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    extra = {"py_callstack": why, "timestamp": str(int(time.time()))}
    content = {"message": {"message": why, "errorCode": status, "extraInfo": extra}}
    with suppress(OSError):
        Path(path).write_text(json.dumps(content))


def _wait_for_others(environment: Mapping[str, str], within_s: float) -> None:
    """Returns when all ranks came here: torchrun kills the rest as soon as one has ended."""
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    from datetime import timedelta

    from torch._C._distributed_c10d import TCPStore

    address, port = environment["MASTER_ADDR"], int(environment["MASTER_PORT"])
    ranks, limit = int(environment["WORLD_SIZE"]), timedelta(seconds=within_s)
    # A counter in torchrun's own store: its agent is there as long as any rank is.
    store = TCPStore(address, port, is_master=False, timeout=limit)
    arrived, end = store.add("vanidl_loaders/ended", 1), time.monotonic() + within_s
    while arrived < ranks and time.monotonic() < end:
        time.sleep(0.02)
        arrived = store.add("vanidl_loaders/ended", 0)
    if arrived >= ranks:
        time.sleep(0.05)  # the last one is about to exit
