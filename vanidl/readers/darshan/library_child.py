"""The child process that calls Darshan's C library; `counters` starts it.

It imports nothing of vanidl, so that it starts fast. The library may abort the process on
a damaged log: each log's result is written out before the next log is opened.

stdin brings one pickled request: {"logs": [(path, size)], "modules": [name], "result":
path of a file, "memory": bytes}. The file receives one pickled answer a log, in order:
{"records": {module: (dtype names, ids, ranks, counters, seconds)}, "others": {module: [record]},
"losses": [sentence], "nothing": {module: version of its records, of which there were none}};
`OTHERS` says what a record of a module without counters holds.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pickle
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_LIBRARY = 4
"""Exit status where PyDarshan has no library: its wheels are for some versions of Python only."""
LOG_SECONDS = 30
BYTES_A_SECOND = 4 << 20

Records = tuple[
    list[str], list[str], NDArray[np.uint64], NDArray[np.int64], NDArray[Any], NDArray[Any]
]


def main() -> int:
    """Answer the request on stdin, log by log."""
    request = pickle.load(sys.stdin.buffer)
    _limit_memory(request["memory"])
    try:
        backend = _backend()
    except RuntimeError:  # of PyDarshan, which looked for the library in vain
        return NO_LIBRARY
    with open(request["result"], "ab") as result:  # noqa: PTH123 - no pathlib, to start fast
        for path, size in request["logs"]:
            signal.alarm(LOG_SECONDS + size // BYTES_A_SECOND)
            answer = _read(backend, path, request["modules"])
            pickle.dump(answer, result, protocol=5)
            result.flush()
            if answer["damaged"]:
                # The library may have written anywhere: the other logs get a new process.
                return 0
    return 0


def _limit_memory(nbytes: int) -> None:
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or nbytes < hard:
        resource.setrlimit(resource.RLIMIT_AS, (nbytes, hard))


def _backend() -> Any:  # noqa: ANN401 - a module of cffi objects, which have no types
    """PyDarshan's binding of the C library.

    Its package imports pandas and more (0.4 s), which the binding needs only for data
    frames: an empty package and an empty pandas stand in. Where that does not work,
    everything is imported.
    """
    from importlib import metadata  # here: it takes time, and commands import this module, too

    spec = importlib.util.find_spec("darshan")
    if spec is None:
        raise ModuleNotFoundError("darshan")
    package = types.ModuleType("darshan")
    package.__path__ = list(spec.submodule_search_locations or [])
    package.__darshanutil_version__ = metadata.version("darshan")  # type: ignore[attr-defined]
    stand_ins = {"darshan": package, "pandas": types.ModuleType("pandas")}
    sys.modules.update(stand_ins)
    try:
        return importlib.import_module("darshan.backend.cffi_backend")
    except (ImportError, AttributeError, NotImplementedError):
        for name in [n for n in sys.modules if n.partition(".")[0] in stand_ins]:
            del sys.modules[name]
        return importlib.import_module("darshan.backend.cffi_backend")


def _read(backend: Any, path: str, modules: list[str]) -> dict[str, Any]:  # noqa: ANN401
    handle = backend.libdutil.darshan_log_open(os.fsencode(path))
    if handle == backend.ffi.NULL:
        loss = "Darshan's library cannot open the log"
        return {"records": {}, "others": {}, "losses": [loss], "nothing": {}, "damaged": False}
    log = {"handle": handle, "modules": None, "name_records": None}
    present = backend.log_get_modules(log)
    records: dict[str, Records] = {}
    others: dict[str, list[Any]] = {}
    losses: list[str] = []
    nothing: dict[str, int] = {}  # module -> version of its records: there were none
    for module in (m for m in modules if m in present and _knows(backend, m)):
        found, whole = _all(backend, handle, module, present[module]["idx"])
        if not found:
            nothing[module] = present[module]["ver"]
        if module in OTHERS:
            others[module] = found
        else:
            records[module] = _columns(backend, module, found)
        if not whole:
            losses.append(f"{module} counters are incomplete: {len(found):,} records were read")
    if not losses:
        backend.log_close(log)  # aborts on some damaged logs
    return {
        "records": records,
        "others": others,
        "losses": losses,
        "nothing": nothing,
        "damaged": bool(losses),
    }


def _all(backend: Any, handle: Any, module: str, index: int) -> tuple[list[Any], bool]:  # noqa: ANN401
    """The records of a module, and whether they ended as they should."""
    ffi, library = backend.ffi, backend.libdutil
    taken = OTHERS.get(module) or _raw(backend, module)
    found = []
    pointer = ffi.new("void **")
    while (status := library.darshan_log_get_record(handle, index, pointer)) > 0:
        # Before the memory that it points into is freed.
        found.append(taken(ffi, pointer[0]))
        library.darshan_free(pointer[0])
        pointer[0] = ffi.NULL
    return found, status == 0


def _raw(backend: Any, module: str) -> Callable[[Any, Any], bytes]:  # noqa: ANN401
    size = backend.ffi.sizeof(_struct(backend, module))
    return lambda ffi, pointer: bytes(ffi.buffer(pointer, size))


def _stripes(ffi: Any, pointer: Any) -> tuple[int, list[tuple[int, int, list[int]]]]:  # noqa: ANN401
    """(file, [(stripe size, stripe count, OSTs)], one entry a component of the layout)."""
    record = ffi.cast("struct darshan_lustre_record *", pointer)
    used, parts = 0, []
    for part in (record.comps[i].counters for i in range(record.num_comps)):
        size, count = int(part[0]), int(part[1])
        held = max(0, min(count, record.num_stripes - used))
        parts.append((size, count, ffi.unpack(record.ost_ids + used, held)))
        used += held
    return int(record.base_rec.id), parts


def _bins(ffi: Any, pointer: Any) -> tuple[int, int, float, bytes, bytes]:  # noqa: ANN401
    """(heat map, rank, width of a bin in s, bytes written and read in each bin as int64)."""
    record = ffi.cast("struct darshan_heatmap_record *", pointer)
    sides = (record.write_bins, record.read_bins)
    written, read = (bytes(ffi.buffer(side, 8 * record.nbins)) for side in sides)
    base = record.base_rec
    return int(base.id), int(base.rank), float(record.bin_width_seconds), written, read


OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "LUSTRE": _stripes,
    "HEATMAP": _bins,
}


def _knows(backend: Any, module: str) -> bool:  # noqa: ANN401
    """Whether this release of the library can read the module's records."""
    return module in OTHERS or module in backend._structdefs


def _struct(backend: Any, module: str) -> str:  # noqa: ANN401
    return str(backend._structdefs[module]).rstrip("* ")


def _columns(backend: Any, module: str, structs: list[bytes]) -> Records:  # noqa: ANN401
    """Names of counters and time counters, ids, ranks, and one row of each a record."""
    ffi = backend.ffi
    struct = _struct(backend, module)
    names, times = backend.counter_names(module), backend.fcounter_names(module)
    layout: Any = {
        "names": ["id", "rank", "counters", "seconds"],
        "formats": ["u8", "i8", (np.int64, (len(names),)), (np.float64, (len(times),))],
        "offsets": [0, 8, ffi.offsetof(struct, "counters"), ffi.offsetof(struct, "fcounters")],
        "itemsize": ffi.sizeof(struct),
    }
    rows: Any = np.frombuffer(b"".join(structs), np.dtype(layout))
    return names, times, rows["id"], rows["rank"], rows["counters"], rows["seconds"]


NO_MEMORY = 3

if __name__ == "__main__":
    try:
        status = main()
    except MemoryError:
        status = NO_MEMORY
    sys.exit(status)
