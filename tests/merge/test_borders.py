"""Both sides of every border at which logs, profiles and versions are one run or are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from tests.merge.test_processes import SPAWN
from vanidl.errors import SeveralJobsError
from vanidl.merge.copies import _is_version, _log_completeness
from vanidl.merge.jobs import choose_run, contains, group_runs
from vanidl.merge.training_steps import CountedSteps
from vanidl.model.trace import SpanKind

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
READ = [Io(0, 10)]
STEP = [Span(SpanKind.STEP, 0, 5 * SECOND, 1)]


def log_at(start_ns: int, length_ns: int = 10 * SECOND, *, pid: int, **how):
    given = {"job_id": str(pid), "start_ns": JOB_START_NS + start_ns, "length_ns": length_ns}
    return darshan_log(READ, pid=pid, **(given | how))


@pytest.mark.parametrize(("apart_ns", "runs"), [(-1, 1), (0, 2), (1, 2)])
def test_logs_of_one_command_are_one_run_where_their_lives_overlap(apart_ns, runs):
    first = log_at(0, pid=1)
    assert len(group_runs([first, log_at(10 * SECOND + apart_ns, pid=2)], [])) == runs
    longer = log_at(0, 20 * SECOND, pid=3)  # what ends sooner does not cut short what goes on
    assert len(group_runs([longer, log_at(1, pid=1), log_at(19 * SECOND, pid=2)], [])) == 1


@pytest.mark.parametrize(("born_ns", "inside"), [(-1, False), (0, True), (10, True)])
def test_a_life_holds_its_first_moment_and_not_its_end(born_ns, inside):
    outer = log_at(0, pid=1)
    assert contains(outer, log_at(born_ns, pid=2)) == inside
    assert contains(outer, log_at(10 * SECOND - 1, pid=2))
    assert not contains(outer, log_at(10 * SECOND, pid=2))
    assert not contains(outer, replace(log_at(5, pid=2), host="other"))


@pytest.mark.parametrize(("apart_ns", "runs"), [(120 * SECOND, 1), (120 * SECOND + 1, 2)])
@pytest.mark.parametrize("sign", [1, -1])
def test_sessions_of_two_hosts_that_end_within_two_minutes_are_one_capture(apart_ns, runs, sign):
    base = [JOB_START_NS, JOB_START_NS + apart_ns][::sign]
    seen = [
        replace(
            profile(STEP, pid=None, host=f"h{i}", base_ns=base[i]),
            path=f"logs/plugins/profile/2026_01_0{i + 1}/h{i}.xplane.pb",
        )
        for i in range(2)
    ]
    assert len(group_runs([], seen)) == runs


@pytest.mark.parametrize(("ranks", "refused"), [(1, False), (2, True), (3, True)])
def test_executions_of_several_ranks_each_are_not_added_up(ranks, refused):
    """One rank and one more of the same job may be two ranks of one program."""
    logs = [log_at(0, pid=None, job_id="7", nprocs=ranks, command=f"app{i}") for i in range(2)]
    logs[1] = replace(logs[1], start_ns=logs[1].start_ns + 20 * SECOND, path="other.darshan")
    groups = group_runs(logs, [])
    if refused:
        with pytest.raises(SeveralJobsError, match="2 executions"):
            choose_run(groups)
    else:
        assert len(choose_run(groups).logs) == 2


@pytest.mark.parametrize("around", [1, 2])
def test_a_spawned_process_joins_the_only_run_around_it(around):
    mains = [log_at(0, pid=i + 1, command=f"python train{i}.py") for i in range(around)]
    child = log_at(SECOND, SECOND, pid=9, command=SPAWN)
    groups = group_runs([*mains, child], [])
    assert len(groups) == (1 if around == 1 else 3)


@pytest.mark.parametrize("resolution_ns", [1, SECOND - 1, SECOND])
def test_logs_that_begin_in_one_second_are_versions_only_where_more_than_it_is_known(
    resolution_ns,
):
    a, b = (
        replace(log_at(0, pid=None), path=path, start_resolution_ns=resolution_ns)
        for path in ("a_1.darshan", "a_2.darshan")
    )
    assert _is_version(a, b) == (resolution_ns < SECOND)
    assert _is_version(a, replace(a, path="a_1.darshan_partial"))
    assert not _is_version(replace(a, pid=1), replace(b, pid=2))


def test_of_versions_the_whole_one_comes_first_and_then_the_one_with_more_operations():
    few, many = (replace(log_at(0, pid=1), operations=darshan_log([Io(i, i + 1) for i in range(n)])
                         .operations, path=f"{9 - n}.darshan") for n in (2, 5))  # fmt: skip
    cut = replace(many, whole=False)
    assert sorted([few, cut, many], key=_log_completeness) == [many, few, cut]


@pytest.mark.parametrize(("early_ns", "mine"), [(HOUR, True), (HOUR + 1, False)])
def test_an_event_file_counts_the_steps_of_a_profile_within_an_hour(early_ns, mine):
    """Their clocks may be of two time zones that differ by an hour."""
    first = profile(STEP)
    bounds = (JOB_START_NS, JOB_START_NS + 5 * SECOND)
    counted = CountedSteps(first, 10, bounds)
    assert counted.is_of(profile(STEP, base_ns=bounds[0] - early_ns)) == mine
    assert counted.is_of(profile(STEP, base_ns=bounds[1] + early_ns)) == mine
