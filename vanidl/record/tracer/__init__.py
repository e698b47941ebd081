"""vanidl's own tracer: a preloaded library that records each call on files, and harms nothing.

`format.h` says what it writes, `tracer.h` how it is made. The library is compiled when vanidl is
installed; where there was no C compiler, it is not here.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from isal import isal_zlib

from vanidl import __version__
from vanidl.errors import InputError
from vanidl.parallel.storage import find_upper_kind
from vanidl.record.recorder import CUT, ENDED, PRELOAD, Recorder, Tracer, prepend_preload

NAME = "vanidl"
FOLDER = "calls"
SUFFIX = ".calls"
EVENTS = "VANIDL_TRACER_EVENTS"
"""How many calls of a process are recorded one by one, 2 million where it is not set."""
NEVER_MAPPED = "VANIDL_TRACER_NEVER_MAPPED"
"""1: files of calls are written as on storage whose mapped pages are not safe (`store.c`)."""

_PLACE, _OTHERWISE = "VANIDL_TRACER", "VANIDL_TRACER_OTHERWISE"
_SAFE_OVERLAY = "VANIDL_TRACER_SAFE_OVERLAY"
_SAFE_KINDS = frozenset((b"ext2", b"ext3", b"ext4", b"xfs", b"tmpfs", b"ramfs"))

LIBRARY = Path(__file__).with_name("libvanidl_tracer.so")

_MAGIC = b"VANIDLTR"
_HEADER = struct.Struct("<8s4I2i2I10Q")
_CHUNK, _SLOT_BYTES = 65536, 40
_SLOTS_NBYTES = _CHUNK // _SLOT_BYTES * _SLOT_BYTES
_BY_BYTES = (2).to_bytes(4, "little")  # the version of a file whose slots lie by their bytes
_VERSION_AT = 8
_ROOM_AT = 88  # of `room_chunks`
_HOST_AT, _HOST_NBYTES = 200, 64
_GZIP = 31


def find_library() -> Path | None:
    """The library to preload, None where it was not compiled."""
    return LIBRARY if sys.platform == "linux" and LIBRARY.is_file() else None


def make_tracer(run: Path, calls_on: Path | None = None) -> Tracer:
    """The tracer, writing into a folder of the run.

    With `calls_on` it writes into a new folder there while the command runs, on this host: RUN may
    lie on storage that many nodes share. Files of other hosts are written to RUN as always.

    Raises:
        InputError: the library is not here, or no folder can be made in `calls_on`.
    """
    preload = find_library()
    if preload is None:
        raise InputError(
            f"expected the tracer's library {LIBRARY.name}, found none: it is "
            "compiled for Linux on x86-64 and arm64 when vanidl is installed, if there is a C "
            "compiler; install one and vanidl anew, or record with --tracer darshan"
        )
    # Where it writes, and where else with `calls_on`.
    folder = run / FOLDER
    beside = _make_folder(calls_on.absolute()) if calls_on is not None else None
    folder.mkdir(parents=True, exist_ok=True)
    environment: dict[str, str | None] = {PRELOAD: prepend_preload(preload), _PLACE: str(folder)}
    if beside is not None:
        environment |= {_PLACE: str(beside), _OTHERWISE: str(folder)}
    if overlay := identify_safe_overlay(beside or folder):
        environment[_SAFE_OVERLAY] = str(overlay)
    return Tracer(
        NAME,
        __version__,
        environment,
        lambda _: gather(beside, folder) if beside is not None else list_logged(folder),
        (
            "The tracer leaves out libraries, Python modules, the system's own files, pseudo file "
            "systems and RUN itself: their I/O is in no number.",
        ),
        drop=lambda: _remove_empty(beside) if beside is not None else None,
        stop=lambda: stop(beside or folder),
        goes_on="Totals of its calls on files are the exception: they go on.",
    )


def identify_safe_overlay(folder: Path) -> int:
    """The number of the overlay that a folder is on, if its upper layer's mapped pages are safe.

    0 where it is on no overlay (the library looks for itself), the upper layer copies on write, or
    nobody can see what it is: the pages of an overlay are those of the file system above.
    """
    kind = find_upper_kind(folder)
    if kind not in _SAFE_KINDS:
        return 0
    return os.statvfs(folder).f_fsid & 0xFFFFFFFF


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _make_folder(place: Path) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="vanidl-calls-", dir=place))
    except OSError as error:
        raise InputError(
            f"--calls-on {place}: expected a folder to write into, found none "
            f"({error.strerror or error}); name one on this machine's own storage"
        ) from error


def gather(beside: Path, folder: Path) -> Mapping[int, str]:
    """As `found`, of both folders; files of the first are moved to the second on the way.

    Those of processes that go on stay, and are none of the run; so do those that have no room.
    """
    here, there = list_logged(beside, folder), list_logged(folder)
    _remove_empty(beside)
    return {**there, **here}


def stop(folder: Path) -> None:
    """Leaves the files no room for more: processes on this host then say since when calls miss.

    Each thread fills what it has at hand, 64 KiB at most. Counters go on, in their own room.
    """
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError), path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes(8), _ROOM_AT)


def list_logged(folder: Path, into: Path | None = None) -> Mapping[int, str]:
    """Processes with a file: pid -> ENDED, or CUT where the last one of that process has no end.

    Files of processes that are gone are compressed on the way, where the disk has room for that;
    with `into`, which then gets them, others are left out.
    """
    latest: dict[int, tuple[int, str]] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            with path.open("rb") as file:
                header = file.read(_HOST_AT + _HOST_NBYTES)
            magic, *_, pid, _parent, _user, _how, start, _, _, end, _, _, _, chunks, _, _ = (
                _HEADER.unpack_from(header)
            )
        except (OSError, struct.error):  # the report will say what is wrong with it
            continue
        if magic != _MAGIC:
            continue
        # Those of processes that are gone are packed; the last file of a process says how it ended.
        host = header[_HOST_AT:].split(b"\0")[0].decode("utf-8", "replace")
        is_gone = host == socket.gethostname() and not Path(f"/proc/{pid}").exists()
        nbytes = chunks * _CHUNK if end else max(chunks * _CHUNK, _find_data_end(path))
        is_packed = is_gone and compress(path, nbytes, into or folder)
        if start >= latest.get(pid, (0, ""))[0] and (is_packed or into is None):
            latest[pid] = start, ENDED if end else CUT
    return {pid: state for pid, (_, state) in latest.items()}


def _find_data_end(path: Path) -> int:
    """Up to where there is more than a hole: the header of a killed process may be older."""
    end = 0
    with suppress(OSError), path.open("rb") as file:
        while True:
            begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
    return -(-end // _CHUNK) * _CHUNK


def _for_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def compress(path: Path, nbytes: int, folder: Path) -> bool:
    """Has a folder hold a file of which so many bytes are used, a fifth as long or so.

    False where it has no room: the file stays as it is.
    """
    packed, part = folder / f"{path.name}.gz", folder / f"{path.name}.part"
    try:
        with path.open("rb") as plain, open(part, "xb", opener=_for_owner) as file:
            packing = isal_zlib.compressobj(1, wbits=_GZIP)
            # The head says that slots lie by their bytes.
            head = plain.read(_CHUNK)
            head = head[:_VERSION_AT] + _BY_BYTES + head[_VERSION_AT + len(_BY_BYTES) :]
            file.write(packing.compress(head))
            for _ in range(_CHUNK, nbytes, _CHUNK):
                chunk = plain.read(_CHUNK)
                # Byte j of all slots side by side, as these are alike.
                columns = [chunk[i:_SLOTS_NBYTES:_SLOT_BYTES] for i in range(_SLOT_BYTES)]
                file.write(packing.compress(b"".join([*columns, chunk[_SLOTS_NBYTES:]])))
            file.write(packing.flush())
        # The plain file goes last, so that one of both is there at any time.
        part.replace(packed)
        path.unlink()
    except OSError:
        part.unlink(missing_ok=True)
        return False
    return True


RECORDER = Recorder(
    NAME, is_here=lambda _: find_library() is not None, prepare=lambda run, _: make_tracer(run)
)
