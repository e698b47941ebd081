"""Counters of module versions that are newer than ours, by PyDarshan where that is installed.

Its C library may end its process on a damaged log, so it reads in a child: what that has not read
when it ends stays unread, and is said.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from tempfile import NamedTemporaryFile

from vanidl.parallel import children
from vanidl.readers.darshan.counter_checks import LAYERS, Table, disjoint, layer_records
from vanidl.readers.records import CounterFile, TracerLog

_MEMORY_BYTES, _START_S, _LOG_S = 8 << 30, 60, 30
_CHILD = """
import pickle, resource, sys
import numpy as np
from darshan.backend import cffi_backend as peer
logs, target, nbytes = pickle.load(sys.stdin.buffer)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_AS, (nbytes, resource.getrlimit(resource.RLIMIT_AS)[1]))
with open(target, "ab", buffering=0) as answers:
    for path, modules in logs:
        log, found = peer.log_open(path), {}
        for module in modules if log["handle"] != peer.ffi.NULL else ():
            if rows := list(iter(lambda: peer.log_get_record(log, module), None)):
                names = tuple(peer.counter_names(module)), tuple(peer.fcounter_names(module))
                who = np.array([r["id"] for r in rows], "u8"), np.array([r["rank"] for r in rows])
                values = (np.array([r[k] for r in rows]).T for k in ("counters", "fcounters"))
                found[module] = *names, (*who, *(np.array(v, order="C") for v in values))
        pickle.dump((path, found), answers)
"""

Found = Mapping[str, tuple[tuple[str, ...], tuple[str, ...], Table]]
"""By module: names of counters, names of times, and the records."""


def with_newer(logs: Sequence[TracerLog]) -> list[TracerLog]:
    """The logs with the counters of newer versions, where PyDarshan knows them."""
    counted = {log.path: log.counters for log in logs if log.counters}
    wanted = {path: [*file.unread] for path, file in counted.items() if {*file.unread} & {*LAYERS}}
    found = read_by_pydarshan(wanted) if wanted else {}
    read = {path: _completed(counted[path], some) for path, some in found.items()}
    return [replace(log, counters=read[log.path]) if log.path in read else log for log in logs]


def read_by_pydarshan(wanted: Mapping[str, Sequence[str]]) -> dict[str, Found]:
    """By path what PyDarshan says of modules; nothing of a log that ended its process."""
    if find_spec("darshan") is None:
        return {}
    logs = [(path, [m for m in some if m in LAYERS]) for path, some in wanted.items()]
    found: dict[str, Found] = {}
    # Where the child died while it wrote, or there is no room, the rest is not there.
    with suppress(OSError, EOFError, pickle.UnpicklingError), NamedTemporaryFile() as answers:
        request = pickle.dumps((logs, answers.name, _MEMORY_BYTES))
        seconds = _START_S + _LOG_S * len(logs)
        children.current_children().run(f"exec({_CHILD!r})", request, seconds)
        while True:
            found |= [pickle.load(answers)]
    return found


def _completed(known: CounterFile, found: Found) -> CounterFile:
    read = [layer_records(module, *some) for module, some in found.items()]
    layers = [*known.layers, *(records for records, _ in read)]
    losses = (*known.losses, *(loss for _, loss in read if loss))
    unread = {m: version for m, version in known.unread.items() if m not in found}
    return replace(known, layers=tuple(disjoint(layers)), losses=losses, unread=unread)
