from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.makers.records import JOB_START_NS, Io, Span, darshan_log, profile
from vanidl.analyses.results import analyse
from vanidl.merge.jobs import Group, choose_run, group_runs
from vanidl.merge.pipeline import assemble
from vanidl.merge.processes import identify_processes
from vanidl.model.trace import SpanKind

SECOND = 1_000_000_000
SPAWN = (
    "python -c from multiprocessing.spawn import spawn_main; spawn_main() --multiprocessing-fork"
)
TRACKER = "python -c from multiprocessing.resource_tracker import main;main(3)"
STEP = [Span(SpanKind.STEP, 0, SECOND, 1)]


def roles(logs, profiles=()):
    """(role, pid of its trainer) of each process by pid."""
    processes = identify_processes(logs, profiles).rows
    trainers = [None if p.trainer is None else processes[p.trainer].pid for p in processes]
    return {p.pid: (p.role, trainer) for p, trainer in zip(processes, trainers, strict=True)}


def test_forked_workers_belong_to_their_parent():
    logs = [darshan_log([Io(0, 10)], pid=100)] + [
        darshan_log([Io(0, 10)], pid=pid, parent=100, start_ns=JOB_START_NS + pid)
        for pid in (101, 102)
    ]  # fmt: skip
    assert roles(logs) == {100: ("trainer", 100), 101: ("worker", 100), 102: ("worker", 100)}


def test_grandchildren_belong_to_the_nearest_trainer():
    logs = [
        darshan_log([Io(0, 10)], pid=1),
        darshan_log([Io(0, 10)], pid=2, parent=1, start_ns=JOB_START_NS + 1),
        darshan_log([Io(0, 10)], pid=3, parent=2, start_ns=JOB_START_NS + 2),
    ]
    assert roles(logs)[3] == ("worker", 1)
    assert roles(logs, [profile(STEP, pid=2)])[3] == ("worker", 2)
    assert roles(logs, [profile(STEP, pid=2)])[1] == ("auxiliary", None)


def test_spawned_children_belong_to_the_only_trainer_around_them():
    main = darshan_log([Io(0, 10)], pid=1, job_id="1")
    child = darshan_log(
        [Io(0, 10)],
        pid=7,
        job_id="7",
        command=SPAWN,
        start_ns=JOB_START_NS + SECOND,
        length_ns=SECOND,
    )
    assert roles([main, child])[7] == ("worker", 1)
    assert len(group_runs([main, child], [])) == 1


def test_a_spawned_child_of_two_possible_trainers_is_unassigned_but_counted():
    mains = [darshan_log([Io(0, 10, 0, 5)], pid=pid, job_id="1") for pid in (1, 2)]
    child = darshan_log([Io(0, 10, 0, 5)], pid=7, job_id="1", command=SPAWN,
                        start_ns=JOB_START_NS + SECOND, length_ns=SECOND)  # fmt: skip
    logs = [*mains, child]
    assert roles(logs)[7] == ("unassigned", None)
    results = analyse(assemble(Group(tuple(logs), ()), {}))
    assert "unassigned" in {w.code for w in results.coverage.warnings}
    assert results.summary.bytes_read == 15
    assert sum(row.bytes_read for row in results.balance.rows) == 10
    assert results.timeline.row_labels[-1] == "no rank"
    assert results.timeline.bytes_read.sum() == 15


def test_families_of_unassigned_children_are_told_apart_by_their_pipe():
    spawn = "python -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd={}, x)"
    mains = [darshan_log([Io(0, 10)], pid=pid, job_id="1") for pid in (1, 2)]
    children = [
        darshan_log([Io(0, 10)], pid=10 + i, job_id="1", command=spawn.format(30 + i % 2),
                    start_ns=JOB_START_NS + SECOND, length_ns=SECOND)
        for i in range(6)
    ]  # fmt: skip
    tracker = darshan_log([Io(0, 1)], pid=9, job_id="1", command=TRACKER, length_ns=SECOND,
                          start_ns=JOB_START_NS + SECOND)  # fmt: skip
    processes = identify_processes([*mains, *children, tracker], [])
    (notice,) = processes.notices
    assert "6 of 9 processes" in notice.message
    assert "2 families of 3" in notice.message
    assert roles([*mains, *children, tracker])[9] == ("auxiliary", None)


def test_a_profile_that_no_rank_of_a_shared_log_claims_is_no_rank():
    log = darshan_log([Io(0, 10, rank=2)], nprocs=4, pid=None)
    processes = identify_processes([log], [profile(STEP, pid=7, host="node09")]).rows
    assert sorted(p.role for p in processes) == ["trainer"] * 4 + ["unassigned"]


def test_a_profile_belongs_to_the_only_rank_of_its_host():
    log = darshan_log([Io(0, 10, rank=0)], nprocs=1, pid=None)
    others = [profile(STEP, pid=None, host="node01"), profile(STEP, pid=None, host="node02")]
    assert len(identify_processes([log], others).rows) == 2


def test_the_resource_tracker_is_auxiliary():
    logs = [
        darshan_log([Io(0, 10)], pid=1),
        darshan_log([Io(0, 10)], pid=8, command=TRACKER, start_ns=JOB_START_NS + 5, length_ns=9),
    ]
    assert roles(logs)[8] == ("auxiliary", 1)


def test_the_worker_of_torch_compile_is_auxiliary_and_of_the_run():
    command = "python /env/torch/_inductor/compile_worker/__main__.py --kind=fork --workers=2"
    logs = [
        darshan_log([Io(0, 10)], pid=1, job_id="1"),
        darshan_log([], pid=8, job_id="8", command=command, start_ns=JOB_START_NS + 5, length_ns=9),
    ]
    assert roles(logs)[8] == ("auxiliary", 1)
    assert len(group_runs(logs, [])) == 1


@pytest.mark.parametrize(
    ("launcher", "launched"),
    [
        ("torchrun --nproc-per-node 2 train.py --lr 1", "python -u train.py --lr 1"),
        ("python -m torch.distributed.run -m pkg.train 3", "python -u -m pkg.train 3"),
        ("python /env/bin/deepspeed train.py -x", "python -u train.py --local_rank=1 -x"),
        ("timeout 60 python train.py", "python train.py"),
    ],
)
def test_a_launcher_is_known_by_the_end_of_its_command(launcher, launched):
    outer = darshan_log([Io(0, 10)], pid=1, job_id="1", command=launcher)
    inner = darshan_log(
        [Io(0, 10)], pid=2, job_id="2", command=launched, start_ns=JOB_START_NS + 5, length_ns=99
    )
    assert len(group_runs([inner, outer], [])) == 1
    assert roles([inner, outer]) == {1: ("auxiliary", None), 2: ("trainer", 2)}


def test_other_scripts_and_programs_not_wholly_inside_stay_apart():
    main = darshan_log([Io(0, 10)], pid=1, job_id="1", command="python train.py a")
    start = {"start_ns": JOB_START_NS + 5}
    other = darshan_log([Io(0, 10)], pid=2, job_id="2", command="python a.py", length_ns=9, **start)
    outlives = darshan_log([Io(0, 10)], pid=3, job_id="3", command="./server", **start)
    assert len(group_runs([main, other], [])) == 2
    assert len(group_runs([main, outlives], [])) == 2


def test_torchrun_is_no_rank():
    agent = darshan_log([Io(0, 10)], pid=1, command="python -m torch.distributed.run train.py")
    ranks = [darshan_log([Io(0, 10)], pid=pid, job_id=str(pid)) for pid in (2, 3)]
    assert roles([agent, *ranks])[1] == ("auxiliary", None)
    assert roles([agent])[1] == ("trainer", 1)


def test_ranks_of_a_shared_log():
    log = darshan_log([Io(0, 10, rank=2)], nprocs=4, pid=None)
    processes = identify_processes([log], []).rows
    assert [(p.rank, p.role) for p in processes] == [(r, "trainer") for r in range(4)]


def test_a_profile_finds_its_process_by_pid_and_host_and_brings_the_rank():
    logs = [darshan_log([Io(0, 10)], pid=pid, job_id=str(pid)) for pid in (5, 6)]
    seen = [profile(STEP, pid=6, rank=0, world_size=2), profile(STEP, pid=5, rank=1, world_size=2)]
    processes = identify_processes(logs, seen)
    assert [(p.pid, p.rank) for p in processes.rows] == [(6, 0), (5, 1)]
    assert processes.of_profile == (0, 1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("pause_s", "is_one"), [(10, True), (11, False)])
def test_a_shell_that_became_a_program_is_that_program_before(order, pause_s, is_one):
    """Scripts fork and then execute what they start: two logs of a number, one after the other."""
    began = JOB_START_NS + SECOND + pause_s * SECOND
    script = darshan_log([Io(0, 10)], pid=3, job_id="1", length_ns=99 * SECOND,
                         command="bash run.sh")  # fmt: skip
    shell = darshan_log([Io(0, 10)], pid=7, parent=3, job_id="1", length_ns=SECOND,
                        command="python train.py")  # fmt: skip
    program = darshan_log([Io(0, 10)], pid=7, job_id="1", start_ns=began, length_ns=60 * SECOND,
                          command="python train.py")  # fmt: skip
    forked = darshan_log([Io(0, 10)], pid=8, parent=7, job_id="1", start_ns=began + SECOND,
                         command="python train.py")  # fmt: skip
    logs = [[shell, program][k] for k in order]
    seen = profile(STEP, pid=7, base_ns=began + 2 * SECOND)
    found = identify_processes([script, *logs, forked], [seen])
    trainer = found.rows[found.of_profile[0]]
    assert (trainer.start_ns, trainer.role) == (began, "trainer")
    (before,) = (p for p in found.rows if p.pid == 7 and p.start_ns == JOB_START_NS)
    assert (before.role == "auxiliary") == is_one
    (worker,) = (p for p in found.rows if p.pid == 8)
    assert found.rows[worker.trainer] == trainer


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_a_result_that_names_a_rank_finds_its_process_beside_what_that_ran(order):
    """DLIO's results name no process; `uname -p` has its rank in the environment, too."""
    logs, seen = [], []
    for rank, pid in ((0, 200), (1, 300)):
        main = darshan_log([Io(0, 10)], pid=pid, command="python3 dlio_benchmark")
        tool = darshan_log(
            [Io(0, 10)], pid=pid + 1, start_ns=JOB_START_NS + SECOND, length_ns=10,
            command="uname -p",
        )  # fmt: skip
        logs += [replace(log, rank=rank) for log in (main, tool)]
        result = profile(STEP, pid=None, rank=rank, world_size=2)
        seen += [replace(result, recording="results"), profile(STEP, pid=pid, rank=rank)]
    processes = identify_processes(logs, [seen[k] for k in order]).rows
    trainers = [(p.pid, p.rank) for p in processes if p.role == "trainer"]
    assert trainers == [(200, 0), (300, 1)]


def test_a_profile_of_an_unknown_process_is_a_rank_without_io():
    processes = identify_processes(
        [darshan_log([Io(0, 10)], pid=5)], [profile(STEP, pid=77, host="other")]
    )
    assert {p.pid for p in processes.rows} == {5, 77}


def test_logs_of_one_command_at_one_time_are_one_run():
    logs = [darshan_log([Io(0, 10)], pid=pid, job_id=str(pid)) for pid in (1, 2, 3)]
    assert len(group_runs(logs, [])) == 1
    later = darshan_log([Io(0, 10)], pid=9, job_id="9", start_ns=JOB_START_NS + 100 * SECOND)
    assert len(group_runs([*logs, later], [])) == 2


def test_ranks_of_one_world_are_one_run():
    seen = [profile(STEP, pid=p, rank=p, world_size=2, host=f"h{p}") for p in (0, 1)]
    assert len(group_runs([], seen)) == 1
    alone = [profile(STEP, pid=p, host=f"h{p}") for p in (0, 1)]
    assert len(group_runs([], alone)) == 2


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_groups_do_not_depend_on_the_order_of_logs(order):
    logs = [
        darshan_log([Io(0, 10)], pid=1, job_id="1"),
        darshan_log([Io(0, 10)], pid=2, parent=1, job_id="1", start_ns=JOB_START_NS + 1),
        darshan_log([Io(0, 10)], pid=3, job_id="3", command="other"),
    ]
    groups = group_runs([logs[i] for i in order], [])
    assert sorted(g.job_ids for g in groups) == [("1",), ("3",)]
    assert len(choose_run(groups, ["1"]).logs) == 2
