"""Both ways between records of ours and PyDarshan's: a DarshanReport in hand, and its data frames.

PyDarshan itself is not imported: a report brings its own records, and frames need pandas alone.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from os import PathLike
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vanidl.errors import InputError
from vanidl.model.trace import READ, WRITE
from vanidl.parallel import children
from vanidl.readers.darshan import dxt, log
from vanidl.readers.darshan.counters import (
    LAYERS,
    Table,
    build_heatmap_records,
    build_layer,
    build_stripe_records,
    split_daos_files,
)
from vanidl.readers.darshan.job import SECOND
from vanidl.readers.darshan.log import read_log, read_pid
from vanidl.readers.records import (
    CounterFile,
    OperationTable,
    TracerLog,
    describe_left_out,
    find_impossible_operations,
)

# Counters of module versions that are newer than ours, by PyDarshan where that is installed.
#
# Its C library may end its process on a damaged log, so it reads in a child: what that has not read
# when it ends stays unread, and is said.

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


def add_newer_counters(logs: Sequence[TracerLog]) -> list[TracerLog]:
    """The logs with the counters of newer versions, where PyDarshan knows them."""
    counted = {log.path: log.counters for log in logs if log.counters}
    wanted = {path: [*file.unread] for path, file in counted.items() if {*file.unread} & {*LAYERS}}
    newer = read_by_pydarshan(wanted) if wanted else {}
    read = {path: _complete_counters(counted[path], some) for path, some in newer.items()}
    return [replace(log, counters=read[log.path]) if log.path in read else log for log in logs]


def read_by_pydarshan(wanted: Mapping[str, Sequence[str]]) -> dict[str, Found]:
    """By path what PyDarshan says of modules; nothing of a log that ended its process."""
    if find_spec("darshan") is None:
        return {}
    logs = [(path, [m for m in some if m in LAYERS]) for path, some in wanted.items()]
    records: dict[str, Found] = {}
    # Where the child died while it wrote, or there is no room, the rest is not there.
    with suppress(OSError, EOFError, pickle.UnpicklingError), NamedTemporaryFile() as answers:
        request = pickle.dumps((logs, answers.name, _MEMORY_BYTES))
        seconds = _START_S + _LOG_S * len(logs)
        children.current_children().run(f"exec({_CHILD!r})", request, seconds)
        while True:
            records |= [pickle.load(answers)]
    return records


def _complete_counters(known: CounterFile, found: Found) -> CounterFile:
    read = [build_layer(module, *some) for module, some in found.items()]
    layers = [*known.layers, *(records for records, _ in read)]
    losses = (*known.losses, *(loss for _, loss in read if loss))
    unread = {m: version for m, version in known.unread.items() if m not in found}
    return replace(known, layers=tuple(split_daos_files(layers)), losses=losses, unread=unread)


_HEATMAPS = {"POSIX": 16592106915301738621, "STDIO": 3989511027826779520,
             "MPIIO": 3668870418325792824, "DFS": 1597927878319380788}  # fmt: skip
_SEGMENT = ("offset", "length", "start_time", "end_time")


def read_report(report: Any) -> TracerLog:  # noqa: ANN401 - PyDarshan has no types
    """What a `darshan.DarshanReport` holds, as `read_log` says it of the file.

    Modules of the log that were not read into the report are named as not read.

    Raises:
        InputError: The report holds no log, or its records are no arrays (dtype "numpy").
    """
    job = report.metadata.get("job") if hasattr(report, "metadata") else None
    if not job or report.dtype != "numpy":
        found = f"records of dtype {report.dtype!r}" if job else "none that read a log"
        raise InputError(
            f"expected a DarshanReport with its records as arrays, found {found}; make it with "
            'darshan.DarshanReport(path, dtype="numpy")'
        )
    # A log of whole seconds may end anywhere in its last one.
    exact = bool(job["start_time_nsec"] or job["end_time_nsec"])
    start_ns, end_ns = (
        job[f"{end}_time_sec"] * SECOND + job[f"{end}_time_nsec"] for end in ("start", "end")
    )
    # Operations, counters, and which modules the report was not given.
    name, metadata = os.fspath(report.filename or ""), dict(job["metadata"])
    tables = [_read_operations(m, report.records[m]) for m in dxt.LAYERS if m in report.records]
    counters = _read_counters(report)
    losses = [loss for _, loss in tables if loss]
    partial = tuple(m for m, of in report.modules.items() if of["partial_flag"])
    hosts = (host for table, _ in tables for host in table.record_host)
    in_hand = {*report.records, "APXC", *(["HEATMAP"] if report.heatmaps else [])}
    parent = metadata.get("fork_parent", "")
    return TracerLog(
        path=name,
        tracer="darshan",
        version=job["log_ver"],
        job_id=str(job["jobid"]),
        host=next((host for host in hosts if host), ""),
        pid=read_pid(name),
        parent_pid=int(parent) if parent.isdigit() else None,
        user_id=job["uid"],
        nprocs=job["nprocs"],
        start_ns=start_ns,
        end_ns=max(start_ns, end_ns if exact else end_ns + SECOND),
        start_resolution_ns=1 if exact else SECOND,
        start_error_ns=log.bound_start_error_ns(job["nprocs"]),
        start_late_ns=log.bound_start_delay_ns(forked=parent.isdigit()),
        command=report.metadata.get("exe", "").strip(),
        metadata=metadata,
        mounts=tuple(sorted(map(tuple, report.mounts), key=lambda mount: -len(mount[0]))),
        names=dict(report.name_records),
        modules=tuple(report.modules),
        operations=tuple(table for table, _ in tables),
        partial_layers=partial,
        whole=not losses,
        losses=tuple(losses),
        counters=counters,
        counts_apart=True,
        unread_modules=tuple(m for m in report.modules if m not in in_hand),
    )


def _read_counters(report: Any) -> CounterFile:  # noqa: ANN401
    layers, losses = [], []
    for module in (m for m in LAYERS if m in report.records):
        rows, names = list(report.records[module]), report.counters[module]
        table = (
            np.array([row["id"] for row in rows], np.uint64),
            np.array([row["rank"] for row in rows], np.int64),
            np.array(np.array([row["counters"] for row in rows], np.int64).T, order="C"),
            np.array(np.array([row["fcounters"] for row in rows], np.float64).T, order="C"),
        )
        columns = tuple(names["counters"]), tuple(names["fcounters"])
        records, loss = build_layer(module, *columns, table)
        layers.append(records)
        losses += [loss] if loss else []

    # Layouts of Lustre, component by component, and heat maps by rank.
    stripes = [
        (row["id"], [(int(c["counters"][0]), int(c["counters"][1]), c["ost_ids"].tolist(),
                         *map(int, c["counters"][4:6])) for c in row["components"]])
        for row in report.records.get("LUSTRE", ())
    ]  # fmt: skip
    bins = (
        (_HEATMAPS.get(name, 0), rank, heat._bin_width_seconds, written, heat._data["read"][rank])
        for name, heat in report.heatmaps.items()
        for rank, written in heat._data["write"].items()
    )
    maps = tuple(build_heatmap_records(bins))
    return CounterFile(
        tuple(split_daos_files(layers)), tuple(losses), tuple(build_stripe_records(stripes)), maps
    )


def _read_operations(module: str, collection: Sequence[Any]) -> tuple[OperationTable, str]:
    """The operations of one DXT module, and a sentence about those that are impossible."""
    records = list(collection)
    # All segments in one list, and how many of each record and kind there are.
    sides = [(i, op, r[key]) for i, r in enumerate(records)
             for op, key in ((WRITE, "write_segments"), (READ, "read_segments"))]  # fmt: skip
    rows = [[s[name] for name in _SEGMENT] for _, _, segments in sides for s in segments]
    counts = [len(segments) for _, _, segments in sides]
    offset, nbytes, start_s, end_s = zip(*rows, strict=True) if rows else ((), (), (), ())
    start, end = (np.rint(np.array(t, np.float64) * 1e9).astype(np.int64) for t in (start_s, end_s))
    columns: dict[str, NDArray[Any]] = {
        "record": np.repeat(np.array([i for i, _, _ in sides], np.int32), counts),
        "op": np.repeat(np.array([op for _, op, _ in sides], np.uint8), counts),
        "offset": np.array(offset, np.int64),
        "nbytes": np.array(nbytes, np.int64),
        "start_ns": start,
        "end_ns": end,
    }

    # Impossible ones are left out, as those of a log that is read here.
    wrong = find_impossible_operations(columns["offset"], columns["nbytes"], start, end)
    kept = {name: column[~wrong] for name, column in columns.items()}
    table = OperationTable(
        layer=dxt.LAYERS[module],
        record_file=np.array([r["id"] for r in records], np.uint64),
        record_rank=np.array([r["rank"] for r in records], np.int64),
        record_host=tuple(r["hostname"] for r in records),
        thread=None,
        **kept,
    )
    return (
        table,
        f"{module}: {describe_left_out(int(wrong.sum()), len(wrong))}" if wrong.any() else "",
    )


def darshan_frames(path: str | PathLike[str]) -> dict[str, Any]:
    """The records of one log as PyDarshan's data frames, by module.

    Of counters `{"counters": frame, "fcounters": frame}` with the columns rank and id first, as
    `report.records[module].to_df()`, ids always of 64 bits without sign; of traced operations (DXT)
    a list of one dict a record, its segments as frames (times in seconds since the start of the
    log).

    Raises:
        InputError: as `read_log`.
    """
    log = read_log(path)
    frames: dict[str, Any] = {}
    modules = {layer: module for module, layer in LAYERS.items()}
    for records in log.counters.layers if log.counters else ():
        module = modules.get(records.layer, "DAOS")  # its objects that are files are a layer apart
        import pandas  # half a second that reading does not need

        who = {"rank": records.rank, "id": records.file}
        values = {"counters": records.counters, "fcounters": records.seconds}
        some = {key: pandas.DataFrame({**who, **columns}) for key, columns in values.items()}
        if module in frames:
            before = frames[module]
            some = {k: pandas.concat([before[k], some[k]], ignore_index=True) for k in some}
        frames[module] = some
    for table in log.operations:
        module = next(m for m, layer in dxt.LAYERS.items() if layer == table.layer)
        frames[module] = list(_build_segment_frames(table))
    return frames


def _build_segment_frames(table: OperationTable) -> Iterator[dict[str, Any]]:
    import pandas

    # The rows of each record, of which PyDarshan has a frame for writes and one for reads.
    order = np.argsort(table.record, kind="stable")
    bounds = np.searchsorted(table.record[order], np.arange(len(table.record_file) + 1))
    for i, (low, high) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        rows = order[low:high]
        record: dict[str, Any] = {
            "id": int(table.record_file[i]),
            "rank": int(table.record_rank[i]),
            "hostname": table.record_host[i],
        }
        for key, op in (("write", WRITE), ("read", READ)):
            some = rows[table.op[rows] == op]
            values = (table.offset[some].astype(np.int64), table.nbytes[some].astype(np.int64),
                      table.start_ns[some] / 1e9, table.end_ns[some] / 1e9)  # fmt: skip
            record[f"{key}_count"] = len(some)
            record[f"{key}_segments"] = pandas.DataFrame(dict(zip(_SEGMENT, values, strict=True)))
        yield record
