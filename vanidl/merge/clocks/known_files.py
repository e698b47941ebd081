"""Files that both sides know: event files, whose records carry wall times, and the profile.

Darshan saw the program write them. A record is written after its time, so no offset may put
a write before its record; where records were written one by one, the promptest of many came
0.1 to 2.1 ms late (measured on 12 processes, the log's own error included). The profile is
written when it is over.
"""

from __future__ import annotations

import numpy as np

from vanidl.merge.clocks.evidence import AlignmentInputs, Evidence, Int64Array, make_interval
from vanidl.model import intervals
from vanidl.model.intervals import Intervals
from vanidl.model.trace import WRITE
from vanidl.readers.records import EventRecords

EVENT_FILE = "event file"
PROFILE_FILE = "profile's file"

_PROMPT_NS = 5_000_000
_FEWEST_RECORDS = 10
_ONE_BY_ONE = 0.8
_ANY = -(2**62)


def find_by_events(inputs: AlignmentInputs, within: Intervals) -> Evidence | None:  # noqa: ARG001
    """Offsets by the lag of each record's write: at most the shortest one.

    None for a profile that does not count from the epoch, as records do, and where the log
    shows no writes of an event file of the process.
    """
    if not inputs.absolute:
        return None
    known = [found for events in inputs.events if (found := _bound_lag(inputs, events)) is not None]
    if not known:
        return None
    offsets = known[0][0]
    for limits, _ in known[1:]:  # files that contradict each other: the first one's
        both = intervals.intersect(offsets, limits)
        offsets = both if len(both.start) else offsets
    return Evidence(EVENT_FILE, offsets, "; ".join(reason for _, reason in known))


def find_by_profile(inputs: AlignmentInputs, within: Intervals) -> Evidence | None:  # noqa: ARG001
    """Offsets at which the profile's own file is first written when its last step is over.

    None where the log shows no write of it.
    """
    # Event files have an evidence of their own.
    events = {e.path for e in inputs.events}
    names = [n for n in (inputs.profile.written_as, inputs.profile.path) if n and n not in events]
    starts = [
        int(start[0]) for start, _ in (_select_writes(inputs, n) for n in names) if len(start)
    ]
    steps = inputs.profile.end_ns[inputs.profile.step >= 0]
    if not starts or not len(steps):
        return None
    limits = make_interval(_ANY, min(starts) - int(steps.max()))
    return Evidence(PROFILE_FILE, limits, "it was written after its last step")


def _bound_lag(inputs: AlignmentInputs, events: EventRecords) -> tuple[Intervals, str] | None:
    start, nbytes = _select_writes(inputs, events.path)
    lags = measure_record_lags(events, start, nbytes)
    if lags is None or len(lags) < _FEWEST_RECORDS:
        return None
    shortest = int(lags.min())
    # In blocks a record may wait long for its write: there is no lower end.
    if len(start) < _ONE_BY_ONE * len(events.nbytes):
        return make_interval(_ANY, shortest), "it was written in blocks, none before its records"
    reason = f"{len(lags):,} records and the writes that carried them"
    return make_interval(shortest - _PROMPT_NS, shortest), reason


def measure_record_lags(
    events: EventRecords, start: Int64Array, nbytes: Int64Array
) -> Int64Array | None:
    """Start of the write that ended each record minus the record's time, ns.

    None where the writes hold other bytes than the records. Records without a time are left
    out.
    """
    if not len(start) or int(nbytes.sum()) != int(events.nbytes.sum()):
        return None
    # The write in which the last byte of each record lies.
    write = np.searchsorted(np.cumsum(nbytes), np.cumsum(events.nbytes))
    timed = events.wall_ns > 0
    return start[write[timed]] - events.wall_ns[timed]


def _select_writes(inputs: AlignmentInputs, path: str) -> tuple[Int64Array, Int64Array]:
    """(starts, sizes) of the writes of the process to a file of that name."""
    none = np.empty(0, np.int64)
    if inputs.own is None:
        return none, none
    wanted = _base_name(path)
    known = inputs.own.log.names.values()
    # A file may be written with .tmp behind its name, and renamed when it is whole.
    paths = [p for p in known if _base_name(p).removesuffix(".tmp") == wanted]
    if len(paths) != 1:
        return none, none
    writes = inputs.own.operations(WRITE)
    mine = writes.file == inputs.own.file_codes.get(paths[0], -1)
    return writes.start[mine], writes.nbytes[mine]


def _base_name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
