"""Darshan logs: our own reader of everything but counters of old or damaged logs.

Nothing in a log is believed: every offset, length and count is bounded by the bytes at
hand. What is whole before a damage is used, and what is lost is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from vanidl.errors import InputError
from vanidl.readers.darshan import apmpi, dxt
from vanidl.readers.darshan import counters as darshan_counters
from vanidl.readers.darshan.dxt import Walked
from vanidl.readers.darshan.header import JOB, NAMES, Header, believed, layout_losses, read_header
from vanidl.readers.darshan.inflate import Stream, joined, only_stream, streams
from vanidl.readers.darshan.job import JobRecord, read_job, read_names
from vanidl.readers.records import CounterFile, MpiRecord, OperationTable, TracerLog

_PID = re.compile(r"_id\d+-(\d+)_")  # USER_COMMAND_idJOB-PID_MONTH-DAY-SECONDS-....darshan
_LARGEST_TIME = 2**62
_HEADER_BYTES = 2048  # no version's header is longer
_HEADER_START = 16  # version and magic

# How late Darshan takes its start, measured with 3.4.7 against file names that hold the time
# they were made: 0.1 to 0.2 ms; under MPI, where a communicator is duplicated before, 0.3 to 8.
_WITHOUT_MPI_NS = 1_000_000
_UNDER_MPI_NS = 10_000_000

_Path = str | os.PathLike[str]
Found = TypeVar("Found")

UNFINISHED = ".darshan_partial"
"""Ending of a log while Darshan writes it; it stays where the process was stopped."""


def read_log(path: str | os.PathLike[str]) -> TracerLog:
    """What one Darshan log says, its counters where `counters` can decode them.

    A cut or damaged log gives every whole stream before the damage, of a cut one also the
    whole operations of its last stream: columns are always a beginning of the full ones.

    Raises:
        InputError: There is no such file, it is no Darshan log, its version is unknown,
            or not even its job record can be read.
    """
    found = _gathered(os.fspath(path), _decoded)
    return _log(found, [table for table in found.dxt if isinstance(table, OperationTable)])


def read_logs(paths: Sequence[str | os.PathLike[str]]) -> list[TracerLog | InputError]:
    """What each of many logs says, as `read_log`, or why it says nothing.

    The operations of all short logs are decoded at once, so all are in memory.
    """
    gathered = [_or_said(_gathered_shortly, path) for path in paths]
    walked = [
        one
        for found in gathered
        if isinstance(found, _Gathered)
        for one in found.dxt
        if isinstance(one, Walked)
    ]
    tables = dxt.tables(walked)
    if tables is None:
        return [_or_said(read_log, path) for path in paths]
    ready = iter(tables)
    return [
        found if isinstance(found, InputError) else _log(
            found, [next(ready) if isinstance(one, Walked) else one for one in found.dxt]
        )
        for found in gathered
    ]  # fmt: skip


def _or_said(read: Callable[[_Path], Found], path: _Path) -> Found | InputError:
    """What is read of a path, or why nothing is."""
    try:
        return read(path)
    except InputError as error:
        return error


def _gathered_shortly(path: _Path) -> _Gathered:
    return _gathered(os.fspath(path), _walked_or_decoded)


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What is known of a log before its operations are decoded, or where they are."""

    name: str
    header: Header
    job: JobRecord
    names: dict[int, str]
    dxt: tuple[OperationTable | Walked, ...]
    mpi: tuple[MpiRecord, ...]
    losses: list[str]
    counters: CounterFile | None


_Traced = OperationTable | Walked


def _gathered(
    name: str, traced: Callable[[memoryview, Header, str, list[str]], _Traced | None]
) -> _Gathered:
    data = memoryview(_bytes(name))
    header = _header(data, name)
    misplaced = layout_losses(header, len(data))
    header, doubtful = believed(header, len(data))
    losses = [*_unfinished(name), *misplaced, *doubtful]
    job = _job(data, header, name, losses)
    names = _names(data, header, losses)
    found = [traced(data, header, module, losses) for module in dxt.LAYERS]
    others, damaged = _others(data, header)
    mpi = _mpi(others, header, losses)
    losses += damaged
    sound = not (misplaced or doubtful or damaged)
    return _Gathered(
        name,
        header,
        job,
        names,
        tuple(one for one in found if one is not None),
        mpi,
        losses,
        darshan_counters.decode(header, others) if sound else None,
    )


def read_identity(path: str | os.PathLike[str]) -> TracerLog:
    """Who wrote a log, when and on which host: all that tells which logs are one run.

    The log without its operations, names and what is lost of them; much faster than `read_log`.

    Raises:
        InputError: as `read_log`.
    """
    name = os.fspath(path)
    data = memoryview(_bytes(name))
    header, _ = believed(_header(data, name), len(data))
    job = _job(data, header, name, [])
    host = next((h for module in dxt.LAYERS if (h := _first_host(data, header, module))), "")
    return replace(_log(_Gathered(name, header, job, {}, (), (), [], None), []), host=host)


def has_new_counters(path: str | os.PathLike[str]) -> bool:
    """Whether `read_log` gives the counters of a log, if it is whole; reads its header only."""
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:
            head = memoryview(file.read(_HEADER_BYTES))
        return darshan_counters.decodable(read_header(head, name))
    except (OSError, InputError):
        return False


def _first_host(data: memoryview, header: Header, module: str) -> str:
    """The host in the first stream of a DXT region, "" for none."""
    region = header.regions.get(module)
    if region is None:
        return ""
    cut = bool(region.missing(len(data)))
    first = next(streams(region.cut_from(data), header.compression, cut=cut), None)
    return "" if first is None else dxt.first_host(first, header.byte_order)


def _log(found: _Gathered, tables: Sequence[OperationTable]) -> TracerLog:
    name, header, job, losses = found.name, found.header, found.job, found.losses
    pid = _PID.search(os.path.basename(name))  # noqa: PTH119
    if job.end_ns < job.start_ns:
        losses.append("the job's end is before its start; its end is taken as unknown")
    parent = job.metadata.get("fork_parent", "")
    return TracerLog(
        path=name,
        tracer="darshan",
        version=header.version,
        job_id=str(job.job_id),
        host=next((h for table in tables for h in table.record_host if h), ""),
        pid=int(pid[1]) if pid else None,
        parent_pid=int(parent) if parent.isdigit() else None,
        user_id=job.user_id,
        nprocs=job.nprocs,
        start_ns=job.start_ns,
        end_ns=max(job.start_ns, job.end_ns),
        start_resolution_ns=job.start_resolution_ns,
        start_error_ns=_UNDER_MPI_NS if job.nprocs > 1 else _WITHOUT_MPI_NS,
        command=job.command,
        metadata=job.metadata,
        mounts=job.mounts,
        names=found.names,
        modules=tuple(m for m in header.regions if m not in (JOB, NAMES)),
        operations=tuple(tables),
        partial_layers=header.partial,
        whole=not losses,
        losses=tuple(losses),
        mpi=found.mpi,
        counters=found.counters,
        counts_apart=True,
    )


def _header(data: memoryview, name: str) -> Header:
    """The header; Darshan writes it last, so an unfinished log may have none."""
    try:
        return read_header(data, name)
    except InputError as error:
        if not name.endswith(UNFINISHED) or any(data[:_HEADER_START]):
            raise
        raise InputError(
            f"{name}: expected a log that Darshan finished, found one whose table of contents "
            "was never written (its process was stopped while it ended); nothing in it can be "
            "found, so record that process again"
        ) from error


def _unfinished(name: str) -> list[str]:
    """A name that Darshan changes once a log is whole."""
    if not name.endswith(UNFINISHED):
        return []
    return ["Darshan did not finish this log: what was written until then is used"]


def _bytes(name: str) -> bytes:
    try:
        with open(name, "rb") as file:  # noqa: PTH123 - of thousands of logs, a Path is a cost
            return file.read()
    except FileNotFoundError:
        found, remedy = "no such file", "check the name"
    except IsADirectoryError:
        found, remedy = "a folder", "name one of the logs in it"
    except OSError as error:
        found, remedy = str(error.strerror), "make it readable"
    raise InputError(f"{name}: expected a Darshan log, found {found}; {remedy}")


def _job(data: memoryview, header: Header, name: str, losses: list[str]) -> JobRecord:
    region = header.regions[JOB]
    # More than one stream: what follows the job record is missing in the table of contents.
    parts = list(streams(region.cut_from(data), header.compression, cut=False))
    first, *others = parts or [Stream(b"", 0)]
    raw, problem = bytes(first.data), first.problem
    job = read_job(raw, header)
    if job is None or max(abs(job.start_ns), abs(job.end_ns)) > _LARGEST_TIME:
        raise InputError(
            f"{name}: expected a job record, found {len(raw)} usable bytes of one"
            f"{f' ({problem})' if problem else ''}; "
            "the log is too damaged to be used: copy it again"
        )
    if problem:
        losses.append(f"the bytes behind the job record are damaged: {problem}")
    if others:
        lost = region.length - first.end
        losses.append(f"{lost:,} bytes behind the job record are missing in the table of contents")
    return job


def _names(data: memoryview, header: Header, losses: list[str]) -> dict[int, str]:
    region = header.regions.get(NAMES)
    if region is None:
        return {}
    cut = bool(region.missing(len(data)))
    raw, problem = joined(region.cut_from(data), header.compression, cut=cut)
    names, left = read_names(raw, header)
    if problem or left:
        reason = problem or f"{left} bytes are no whole name"
        losses.append(f"only {len(names):,} file names could be read: {reason}")
    return names


def _mpi(others: Mapping[str, bytes], header: Header, losses: list[str]) -> tuple[MpiRecord, ...]:
    if apmpi.MODULE not in others:
        return ()
    records, left = apmpi.decode(others[apmpi.MODULE], header.byte_order)
    if left:
        losses.append(f"{apmpi.MODULE}: {left:,} bytes are no whole record")
    return records


def _others(data: memoryview, header: Header) -> tuple[dict[str, bytes], list[str]]:
    """What is whole of the modules without traced operations, and sentences about damage.

    A cut region gives what is whole before the cut, and no sentence: the header's tell of it.
    """
    found: dict[str, bytes] = {}
    damaged = []
    for region in header.regions.values():
        if region.name not in (JOB, NAMES, *dxt.LAYERS):
            cut = bool(region.missing(len(data)))
            found[region.name], problem = joined(region.cut_from(data), header.compression, cut=cut)
            if problem and not cut:
                damaged.append(f"{region.name} is damaged: {problem}")
    return found, damaged


def _walked_or_decoded(
    data: memoryview, header: Header, module: str, losses: list[str]
) -> _Traced | None:
    """The walked records of a short, whole region; anything else decoded."""
    region = header.regions.get(module)
    if region is None:
        return None
    known = 1 <= region.version <= dxt.NEWEST_VERSION[dxt.LAYERS[module]]
    if known and not region.missing(len(data)):
        only = only_stream(region.cut_from(data), header.compression)
        walked = only and dxt.walk(only.data, module, region.version, header.byte_order)
        if walked:
            return walked
    return _decoded(data, header, module, losses)


def _decoded(data: memoryview, header: Header, module: str, losses: list[str]) -> _Traced | None:
    region = header.regions.get(module)
    if region is None:
        return None
    if not 1 <= region.version <= dxt.NEWEST_VERSION[dxt.LAYERS[module]]:
        losses.append(
            f"{module} has records of version {region.version}, which this vanidl cannot read"
        )
        return None
    held = region.cut_from(data)
    table, missing = dxt.decode(
        streams(held, header.compression, cut=bool(region.missing(len(data)))),
        module,
        region.version,
        byte_order=header.byte_order,
        nbytes=len(held),
    )
    losses.extend(missing)
    return table
