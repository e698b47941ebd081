"""Hosts without a moment in common are said: their clocks may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.makers.records import JOB_START_NS, Io, darshan_log
from vanidl.errors import SeveralJobsError
from vanidl.merge.jobs import choose_run, find_hosts_apart, group_runs

SECOND = 1_000_000_000
READ = Io(0, 1000, 0, 10)


def log(host: str, start_s: float, length_s: float = 10, pid: int = 100):
    start_ns = JOB_START_NS + round(start_s * SECOND)
    found = darshan_log([READ], pid=pid, start_ns=start_ns, length_ns=round(length_s * SECOND),
                        job_id=str(pid))  # fmt: skip
    return replace(found, host=host)


@pytest.mark.parametrize(("start_s", "apart"), [(9.9, False), (10.0, False), (10.1, True)])
def test_a_gap_between_hosts_is_said_with_its_length(start_s: float, apart: bool) -> None:
    said = find_hosts_apart([log("node1", 0), log("node2", start_s)])
    assert bool(said) == apart
    if apart:
        assert said.startswith("Logs of node1 and node2 do not overlap in time, by 100 ms")


def test_no_gap_where_another_host_spans_it_or_one_is_not_known() -> None:
    assert not find_hosts_apart([log("node1", 0), log("node2", 20), log("node3", 0, 30)])
    assert not find_hosts_apart([log("node1", 0), log("", 20)])
    assert not find_hosts_apart([log("node1", 0), log("node1", 20)])
    assert not find_hosts_apart([])


def test_several_jobs_on_hosts_apart_come_with_the_hint() -> None:
    logs = [log("node1", 0, pid=1), log("node2", 70, pid=2)]
    with pytest.raises(
        SeveralJobsError, match=r"do not overlap in time, by 60\.0 s .*take them all"
    ):
        choose_run(group_runs(logs, []))
    near = [log("node1", 0, pid=1), log("node1", 1000, pid=2)]
    with pytest.raises(SeveralJobsError) as error:
        choose_run(group_runs(near, []))
    assert "overlap" not in str(error.value)
