"""Darshan logs: our own reader.

Nothing in a log is believed: every offset, length and count is bounded by the bytes at
hand. What is whole before a damage is used, and what is lost is said.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, cast

from vanidl.encoding.budget import Budget, names_limit, whole_number
from vanidl.encoding.file_bytes import AnyBytes, read_one
from vanidl.encoding.inflate import Stream, damage, joined, only_stream, streams
from vanidl.errors import InputError
from vanidl.formatting.units import plural
from vanidl.readers.darshan.counters import (
    DECODED,
    LAYERS,
    MPI_MODULE,
    OTHERS,
    Layer,
    Raw,
    decode_counters,
    decode_layers,
    decode_mpi,
)
from vanidl.readers.darshan.header import (
    DXT_MODULES,
    JOB,
    NAMES,
    Header,
    Region,
    drop_overlapping,
    find_layout_losses,
    open_log,
    read_header,
)
from vanidl.readers.darshan.job import JobRecord, read_job, read_names
from vanidl.readers.records import MpiRecord, OperationTable, TracerLog
from vanidl.schema.dataclass import dataclass

if TYPE_CHECKING:
    from vanidl.readers.darshan.dxt import TablePlace, Walked

    _Traced = OperationTable | Walked
    _Table = OperationTable | TablePlace

# How far the start that a Darshan log gives may be off its zero of time.

# How late Darshan takes its start, measured with 3.4.7 against file names that hold the time
# they were made: 0.1 to 0.2 ms; under MPI, where a communicator is duplicated before, 0.3 to 8.
_WITHOUT_MPI_NS = 1_000_000
_UNDER_MPI_NS = 10_000_000

# A forked process counts its times from the fork, then clears Darshan's memory, and takes the
# start after that. Where malloc gives it pages of its parent's heap, each is copied first:
# measured 1 to 72 ms on two shared cores with MODMEM 24, 125 to 260 ms on a loaded machine.
_FORKED_NS = 500_000_000


def bound_start_error_ns(nprocs: int) -> int:
    """Bound in ns on the error of the start, earlier or later, of a log of so many processes."""
    return _UNDER_MPI_NS if nprocs > 1 else _WITHOUT_MPI_NS


def bound_start_delay_ns(*, forked: bool) -> int:
    """Bound in ns on how late the start of a log is, beside that, by the fork before it."""
    return _FORKED_NS if forked else 0


_PID = re.compile(r"_id\d+-(\d+)_")  # USER_COMMAND_idJOB-PID_MONTH-DAY-SECONDS-....darshan
_LARGEST_TIME = 2**62
_MOST_RANKS = 1 << 18  # of a small log; a byte more is a rank more
_JOB_BYTES = 4 << 20  # command and mounts, which take some thousand
_HEADER_BYTES = 2048  # no version's header is longer
_HEADER_START = 16  # version and magic

_READ = frozenset((JOB, NAMES, MPI_MODULE, *DXT_MODULES, *LAYERS, *OTHERS))
"""The regions of a log that are read."""

_Path = str | os.PathLike[str]
Found = TypeVar("Found")

_MOST_NAMED = 3  # modules in one sentence
_DECODED = {*DECODED, MPI_MODULE}
"""Modules without traced operations whose content is of use."""

UNFINISHED = ".darshan_partial"
"""Ending of a log while Darshan writes it; it stays where the process was stopped."""


def read_log(path: str | os.PathLike[str]) -> TracerLog:
    """What one Darshan log says.

    A cut or damaged log gives every whole stream before the damage, of a cut one also the
    whole operations of its last stream: columns are always a beginning of the full ones. So are
    its counters.

    Raises:
        InputError: There is no such file, it is no Darshan log, its version is unknown,
            or not even its job record can be read.
    """
    gathered = _gather(os.fspath(path), _decode)
    return _build_log(
        gathered, [table for table in gathered.dxt if isinstance(table, OperationTable)], {}
    )


def read_logs(paths: Sequence[str | os.PathLike[str]]) -> list[TracerLog | InputError]:
    """What each of many logs says, as `read_log`, or why it says nothing.

    The operations of all short logs are decoded at once, so all are in memory, and so are counters.
    """
    return _read_together(paths, sent=False)


def read_logs_to_send(paths: Sequence[str | os.PathLike[str]]) -> list[TracerLog | InputError]:
    """As `read_logs`, of use to another process only: what is whole there is cut there."""
    return _read_together(paths, sent=True)


def _read_together(
    paths: Sequence[str | os.PathLike[str]], *, sent: bool
) -> list[TracerLog | InputError]:
    gathered = [_read_or_explain(_gather_lazily, path) for path in paths]
    parts = _decode_batch([one for one in gathered if isinstance(one, _Gathered)], sent=sent)
    if parts is None:
        return [_read_or_explain(read_log, path) for path in paths]
    ready = iter(parts)
    return [
        one if isinstance(one, InputError) else _build_or_explain(one, *next(ready))
        for one in gathered
    ]


def _decode_batch(
    gathered: Sequence[_Gathered], *, sent: bool
) -> list[tuple[list[_Table], dict[str, Layer]]] | None:
    """Operations and counters of many logs; None where they have to be decoded one by one."""
    counted = [one.counters for one in gathered if one.counters]
    from vanidl.readers.darshan import dxt

    # All at once: regions of the same shape become one table, of which each log has a slice.
    try:
        tables = dxt.decode_regions(
            [t for one in gathered for t in one.dxt if isinstance(t, dxt.Walked)]
        )
        layers = iter(decode_layers(counted, sent=sent))
    except MemoryError:  # together they need too much: each of them may not
        return None
    if tables is None:
        return None

    # What belongs to which log again.
    ready: Iterator[_Table] = iter(tables if sent else [table.cut() for table in tables])
    return [
        (
            [next(ready) if isinstance(t, dxt.Walked) else t for t in one.dxt],
            next(layers) if one.counters else {},
        )
        for one in gathered
    ]


def _build_or_explain(
    found: _Gathered, tables: list[_Table], layers: dict[str, Layer]
) -> TracerLog | InputError:
    return _read_or_explain(lambda _: _build_log(found, tables, layers), found.name)


def _read_or_explain(read: Callable[[_Path], Found], path: _Path) -> Found | InputError:
    """What is read of a path, or why nothing is."""
    try:
        return read_one(read, os.fspath(path))
    except InputError as error:
        return error


def _gather_lazily(path: _Path) -> _Gathered:
    return _gather(os.fspath(path), _walk_or_decode)


@dataclass(frozen=True, slots=True)
class _Gathered:
    """What is known of a log before its operations are decoded, or where they are."""

    name: str
    header: Header
    job: JobRecord
    names: Mapping[int, str]
    dxt: tuple[OperationTable | Walked, ...]
    mpi: tuple[MpiRecord, ...]
    losses: list[str]
    counters: Raw | None  # None where only its identity is asked for


@dataclass(frozen=True, slots=True)
class _Source:
    """The bytes of a log, what lies where in them, and what they may still cost."""

    data: AnyBytes
    header: Header  # without regions that cannot be where it says
    budget: Budget

    def cut(self, region: Region) -> bool:
        """Whether the file ends before a region does."""
        return bool(region.missing(len(self.data)))

    def streams(self, region: Region, *, cut: bool) -> Iterator[Stream]:
        """The inflated streams of a region."""
        held = region.cut_from(self.data)
        return streams(held, self.header.compression, cut=cut, budget=self.budget)

    def joined(self, region: Region) -> tuple[bytes, str]:
        """The inflated bytes of a region, and what is wrong with it."""
        held, cut = region.cut_from(self.data), self.cut(region)
        return joined(held, self.header.compression, cut=cut, budget=self.budget)


def _open(name: str) -> tuple[_Source, list[str], list[str]]:
    """(the log, sentences about its layout, about regions that are left out)."""
    data = open_log(name)
    head = data if isinstance(data, memoryview) else data[:_HEADER_BYTES]
    try:
        header = read_header(head, name)
    except InputError as error:
        # Darshan writes the header last, so an unfinished log may have none.
        if not len(head) or any(head[:_HEADER_START]):
            raise
        raise InputError(
            f"{name}: expected a log that Darshan finished, found one whose header was never "
            "written (its process was stopped while it ended); nothing in it can be found, so "
            "record that process again"
        ) from error
    misplaced = find_layout_losses(header, len(data))
    header, doubtful = drop_overlapping(header, len(data)) if misplaced else (header, [])
    return _Source(data, header, Budget.of_file(len(data))), misplaced, doubtful


def _gather(name: str, traced: Callable[[_Source, str, list[str]], _Traced | None]) -> _Gathered:
    source, misplaced, doubtful = _open(name)
    header = source.header
    losses = [*misplaced, *doubtful]
    if name.endswith(UNFINISHED):  # a name that Darshan changes once a log is whole
        losses.insert(0, "Darshan did not finish this log: what was written until then is used")

    # The job, and the names of its files.
    job = _read_job(source, name, losses)
    names: Mapping[int, str] = {}
    region = header.regions.get(NAMES)
    if region is not None:
        raw, problem = source.joined(region)
        names, left = read_names(raw, header, source.budget)
        if problem or left:
            reason = problem or f"{left} bytes are no whole name"
            losses.append(f"only {len(names):,} file names could be read: {reason}")

    # The traced operations, then the counters of all other modules; time in MPI is one of these.
    tables = [traced(source, module, losses) for module in DXT_MODULES]
    counters = _read_modules(source, losses)
    mpi: tuple[MpiRecord, ...] = ()
    if MPI_MODULE in counters.regions:
        mpi, left = decode_mpi(counters.regions[MPI_MODULE], header.byte_order)
        if left:
            losses.append(f"{MPI_MODULE}: {left:,} bytes are no whole record")
    return _Gathered(
        name,
        header,
        job,
        names,
        tuple(table for table in tables if table is not None),
        mpi,
        losses,
        counters,
    )


def read_identity(path: str | os.PathLike[str]) -> TracerLog:
    """Who wrote a log, when and on which host: all that tells which logs are one run.

    The log without its operations, names and what is lost of them; much faster than `read_log`.

    Raises:
        InputError: as `read_log`.
    """
    name = os.fspath(path)
    source, _, _ = _open(name)
    job = _read_job(source, name, [])
    host = next((h for module in DXT_MODULES if (h := _find_first_host(source, module))), "")
    gathered = _Gathered(name, source.header, job, {}, (), (), [], None)
    return replace(_build_log(gathered, [], {}), host=host)


def _find_first_host(source: _Source, module: str) -> str:
    """The host in the first stream of a DXT region, "" for none."""
    region = source.header.regions.get(module)
    if region is None:
        return ""
    from vanidl.readers.darshan import dxt

    first = next(source.streams(region, cut=source.cut(region)), None)
    return "" if first is None else dxt.read_first_host(first.data)


def read_pid(name: str) -> int | None:
    """The process that a log's name names."""
    match = _PID.search(os.path.basename(name))  # noqa: PTH119
    return whole_number(match[1]) if match else None


def _build_log(
    found: _Gathered, tables: Sequence[_Table], layers: Mapping[str, Layer]
) -> TracerLog:
    """The record of a log whose operations and, by module, some counters are decoded."""
    name, header, job, losses = found.name, found.header, found.job, found.losses
    if job.end_ns < job.start_ns:
        losses.append("the job's end is before its start; its end is taken as unknown")
    parent = job.metadata.get("fork_parent", "")
    return TracerLog(
        path=name,
        tracer="darshan",
        version=header.version,
        job_id=str(job.job_id),
        host=next((h for table in tables for h in table.record_host if h), ""),
        pid=read_pid(name),
        parent_pid=whole_number(parent),
        user_id=job.user_id,
        nprocs=job.nprocs,
        start_ns=job.start_ns,
        end_ns=max(job.start_ns, job.end_ns),
        start_resolution_ns=job.start_resolution_ns,
        start_error_ns=bound_start_error_ns(job.nprocs),
        start_late_ns=bound_start_delay_ns(forked=parent.isdigit()),
        command=job.command,
        metadata=job.metadata,
        mounts=job.mounts,
        names=found.names,
        modules=tuple(m for m in header.regions if m not in (JOB, NAMES)),
        operations=cast(tuple[OperationTable, ...], tuple(tables)),  # which places become
        partial_layers=header.partial,
        whole=not losses,
        losses=tuple(losses),
        mpi=found.mpi,
        counters=decode_counters(found.counters, layers) if found.counters else None,
        counts_apart=True,
        unread_modules=tuple(m for m in header.regions if m not in _READ),
    )


def _read_job(source: _Source, name: str, losses: list[str]) -> JobRecord:
    region = source.header.regions[JOB]

    # More than one stream: what follows the job record is missing in the table of contents.
    parts = source.streams(region, cut=False)
    first = next(parts, Stream(b"", 0))
    others = next(parts, None)
    raw, problem = bytes(first.data[:_JOB_BYTES]), first.problem
    job = read_job(raw, source.header)
    if job is None or max(abs(job.start_ns), abs(job.end_ns)) > _LARGEST_TIME:
        raise InputError(
            f"{name}: expected a job record, found {len(raw)} usable bytes of one"
            f"{f' ({problem})' if problem else ''}; "
            "the log is too damaged to be used: copy it again"
        )

    # What follows sizes tables by the number of ranks: it is bounded by the file.
    if not 0 <= job.nprocs <= _MOST_RANKS + len(source.data):
        raise InputError(
            f"{name}: expected at most {_MOST_RANKS:,} processes in so small a log, found "
            f"{job.nprocs:,}; record the job again"
        )
    if problem:
        losses.append(f"the bytes behind the job record are damaged: {problem}")
    if others is not None:
        lost = region.length - first.end
        losses.append(f"{lost:,} bytes behind the job record are missing in the table of contents")
    return job


def _read_modules(source: _Source, losses: list[str]) -> Raw:
    """What is whole of the modules without traced operations; adds sentences about damage.

    A cut region gives what is whole before the cut, and no sentence: the header's tell of it.
    Of modules that nothing here decodes only the damage is looked for.
    """
    regions: dict[str, bytes] = {}
    broken = set()
    beyond: dict[str, list[str]] = {}
    for region in source.header.regions.values():
        if region.name in (JOB, NAMES, *DXT_MODULES):
            continue
        if region.name in _DECODED:
            regions[region.name], problem = source.joined(region)
        else:
            problem = damage(region.cut_from(source.data), source.header.compression, source.budget)
        cut = source.cut(region)
        if names_limit(problem):
            beyond.setdefault(problem, []).append(region.name)
        elif problem and not cut:
            losses.append(f"{region.name} is damaged: {problem}")
        if problem or cut:
            broken.add(region.name)

    # One sentence for all modules that went beyond the same limit.
    for problem, names in beyond.items():
        shown = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
        which = f"{plural(len(names), 'module')} ({shown})" if len(names) > 1 else shown
        losses.append(f"{which}: {problem}")
    return Raw(source.header, regions, frozenset(broken))


def _walk_or_decode(source: _Source, module: str, losses: list[str]) -> _Traced | None:
    """The walked records of a short, whole region; anything else decoded."""
    header = source.header
    region = header.regions.get(module)
    if region is None:
        return None
    from vanidl.readers.darshan import dxt

    # What is only walked is decoded later, together with the regions of many other logs.
    known = 1 <= region.version <= dxt.NEWEST_VERSION[dxt.LAYERS[module]]
    if known and not source.cut(region):
        held = region.cut_from(source.data)
        only = only_stream(held, header.compression, source.budget)
        walked = only and dxt.walk_region(
            only.data, module, region.version, header.byte_order, source.budget
        )
        if walked:
            return walked
    return _decode(source, module, losses)


def _decode(source: _Source, module: str, losses: list[str]) -> _Traced | None:
    region = source.header.regions.get(module)
    if region is None:
        return None
    from vanidl.readers.darshan import dxt  # logs of counters alone have no use for it

    if not 1 <= region.version <= dxt.NEWEST_VERSION[dxt.LAYERS[module]]:
        losses.append(
            f"{module} has records of version {region.version}, which this vanidl cannot read"
        )
        return None
    table, missing = dxt.decode_dxt(
        source.streams(region, cut=source.cut(region)),
        module,
        region.version,
        byte_order=source.header.byte_order,
        nbytes=len(region.cut_from(source.data)),
        budget=source.budget,
    )
    losses.extend(missing)
    return table
