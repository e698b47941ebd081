"""What profiles add to the trace of the logs."""

from __future__ import annotations

from dataclasses import fields

from tests.makers.records import Io, darshan_log
from vanidl.merge.pipeline import build_trace_of_logs
from vanidl.merge.processes import identify_processes
from vanidl.merge.profiles import add_profiles, choose_profiles


def test_no_profiles_add_nothing_to_the_trace_of_logs() -> None:
    log = darshan_log([Io(0, 10, 0, 4096)])
    trace = build_trace_of_logs([log])
    added = add_profiles(trace, [], identify_processes([log], []), [])
    for field in fields(trace):
        before, after = getattr(trace, field.name), getattr(added, field.name)
        if field.name == "spans":
            assert len(before) == len(after) == 0
            assert before.names == after.names
        else:
            assert before is after or before == after, field.name


def test_logs_without_profiles_are_chosen_as_they_are() -> None:
    log = darshan_log([Io(0, 10, 0, 4096)])
    assert choose_profiles([log], [], []) == ([log], [], [])
