"""Every rule fires where its label says so and is silent elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import vanidl
from tests.advice import labeled
from tests.advice.labeled import LABELS, RECIPES, RECORDED, held_back
from tests.makers.training_jobs import trace_of
from vanidl.advice import job_counters, training_loop
from vanidl.advice.changes import STARTING_S, bound_handing_over_s
from vanidl.advice.facts import Facts
from vanidl.advice.finding import SEVERITIES
from vanidl.advice.registry import apply, find, list_rules
from vanidl.analyses.results import Results, analyse
from vanidl.breakdown import Breakdown
from vanidl.model.trace import Trace
from vanidl.run import Run

CODES = [rule.code for rule in list_rules()]
DATA = Path(__file__).parents[1] / "data"


def made(name: str) -> tuple[Trace, Results, Breakdown]:
    run = labeled.made(name)
    return run.trace, run.results, run.breakdown


@pytest.fixture
def recorded(shared, opened) -> Callable[[str], tuple[Trace, Results, Breakdown]]:
    """The recorded run or public log of a label."""

    def parts_of(name: str) -> tuple[Trace, Results, Breakdown]:
        run = opened(shared / "data" / name)
        return run.trace, run.results, run.breakdown

    return parts_of


def codes(run: tuple[Trace, Results, Breakdown]) -> set[str]:
    return {finding.code for finding in find(*run)}


@pytest.mark.parametrize("name", [n for n in RECIPES if not held_back(n)])
def test_made_up_runs_have_the_findings_of_their_labels(name):
    assert codes(made(name)) == set(LABELS[name])


@pytest.mark.parametrize("name", [n for n in RECORDED if not held_back(n)])
def test_recorded_runs_have_the_findings_of_their_labels(name, recorded):
    assert codes(recorded(name)) == set(LABELS[name])


def test_held_back_half_has_precision_and_recall_of_95_percent(recorded):
    right = extra = missing = 0
    for name in filter(held_back, LABELS):
        found = codes(made(name) if name in RECIPES else recorded(name))
        label = set(LABELS[name])
        right += len(found & label)
        extra += len(found - label)
        missing += len(label - found)
    assert right / (right + extra) >= 0.95, f"{extra} of {right + extra} findings are false"
    assert right / (right + missing) >= 0.95, f"{missing} of {right + missing} were missed"


OF_ACCOUNTS = {
    "program_failed",
    "chunks_read_again",
    "reopened",
    "buffer_fills",
    "read_twice_at_start",
    "input_bound_blocked",
    "input_bound_cores",
    "input_bound_workers",
    "storage_saturated",
    "storage_crowded",
    "waits_for_metadata",
    "uneven_input",
    "cores_taken",
    *(rule.code for rule in training_loop.RULES),
    *(rule.code for rule in job_counters.RULES),
}
"""Rules whose both sides `test_training_loop`, `test_input_waits` and `test_access_costs` show, on
accounts and facts by hand."""


@pytest.mark.parametrize(
    "rule", [r for r in list_rules() if r.code not in OF_ACCOUNTS], ids=lambda rule: rule.code
)
def test_each_rule_has_a_run_where_it_fires_and_one_where_it_does_not(rule):
    fires = [name for name in RECIPES if rule.code in LABELS[name]]
    silent = next(name for name in RECIPES if name not in fires)
    assert fires, f"no recipe for {rule.code}"
    finding = apply(rule, Facts(*made(fires[0])))
    assert finding is not None
    assert finding.code == rule.code
    assert finding.evidence
    assert finding.severity in SEVERITIES
    assert apply(rule, Facts(*made(silent))) is None


def test_an_empty_log_gives_no_finding(recorded):
    assert find(*recorded("public/darshan_logs/empty_log.darshan")) == ()


def test_codes_are_stable_and_each_rule_is_explained():
    definitions = json.loads((Path(__file__).parent / "labels.json").read_text())["definitions"]
    assert sorted(CODES) == sorted(c for c in definitions if not c.startswith("("))
    assert all(rule.definition and rule.threshold and rule.reason for rule in list_rules())


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_no_gain_exceeds_the_time_that_was_observed(name):
    trace, results, _ = made(name)
    for finding in find(trace, results):
        gain = finding.gain_at_most_s
        assert gain is None or 0 <= gain <= trace.job.run_time_s
        json.dumps(dict(finding.evidence), allow_nan=False)


@pytest.mark.parametrize("name", ["tiny_files_to_the_end", "tiny_files_again_and_again"])
def test_empty_reads_at_the_end_of_files_are_no_samples(name):
    """As many samples, as large, as in the same run that asks for nothing beyond the end."""
    recipe = RECIPES[name]
    traces = [trace_of(recipe), trace_of(replace(recipe, to_the_end=False))]
    with_end, without = (Facts(trace, analyse(trace)) for trace in traces)
    samples = recipe.epochs * recipe.steps * recipe.batch
    assert with_end.results.dataset.empty_reads == samples
    assert with_end.reads == without.reads == samples
    assert with_end.mean_read_nbytes == without.mean_read_nbytes == recipe.sample_nbytes
    assert with_end.jumps == without.jumps == 0
    by_counters = replace(with_end.results.dataset, empty_reads=None)
    counted = Facts(traces[0], replace(with_end.results, dataset=by_counters))
    assert counted.reads == samples


@pytest.mark.parametrize("name", ["many_imports", "slow_imports", "much_through_stdio"])
def test_advice_about_darshans_limits_is_for_runs_that_darshan_recorded(name):
    trace, *_ = made(name)
    job = replace(trace.job, tracer="dftracer", counts_apart=False)
    other = replace(trace, job=job, layers_traced=("POSIX", "STDIO"))
    for by_darshan, run in ((True, trace), (False, other)):
        (finding,) = find(run, analyse(run))
        words = finding.detail + finding.advice
        limits = ("vanidl record", "NAME_EXCLUDE", "Darshan", "not traced operation by operation")
        assert any(word in words for word in limits) == by_darshan


def test_io_of_no_kind_is_found_by_counters_too():
    trace, *_ = made("read_and_written")
    untraced = replace(trace, io=(), layers_traced=())
    (found,) = [f for f in find(untraced, analyse(untraced)) if f.code == "unclassified_io"]
    assert "per rank, by counters, in" in found.detail
    assert "busy_s" not in found.evidence  # busy time takes operations one by one
    named = replace(trace, files=replace(trace.files, kind=("dataset",) * len(trace.files)))
    assert "unclassified_io" not in codes((named, analyse(named)))


def test_shuffling_is_not_blamed_where_files_are_read_whole():
    """Which samples are next to each other in a file cannot matter then."""
    whole, samples = (
        next(f for f in find(*made(name)) if f.code == "random_reads")
        for name in ("whole_files_in_jumps", "random_reads")
    )
    assert "huffl" not in whole.detail + whole.advice
    assert "huffl" in samples.detail + samples.advice


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_no_file_is_named_as_the_cause_that_holds_less_than_half(name):
    """Of the bytes, the time or the opens of its kind of files."""
    trace, results, _ = made(name)
    rows = results.files.rows
    opens = {f.path: f.opens or 0 for f in results.dataset.files} if results.dataset else {}
    for finding in find(trace, results):
        if finding.code == "reads_not_seen":  # names what it knows nothing of
            continue
        said = json.dumps([finding.title, finding.detail, finding.advice, dict(finding.evidence)])
        for row in (r for r in rows if r.path in said):
            same = [r for r in rows if r.kind == row.kind]
            amounts = [
                (
                    row.bytes_read + row.bytes_written,
                    [r.bytes_read + r.bytes_written for r in same],
                ),
                (row.io_s or 0.0, [r.io_s or 0.0 for r in same]),
                (opens.get(row.path, 0), list(opens.values())),
            ]
            assert any(mine > sum(every) / 2 for mine, every in amounts), (finding.code, row.path)


def test_time_in_a_small_file_is_that_of_its_opens_and_reads():
    recipe = RECIPES["metadata_file_again"]
    finding = next(f for f in find(*made("metadata_file_again")) if f.code == "file_read_again")
    times = recipe.epochs * recipe.steps * recipe.batch
    assert finding.evidence["opens"] == times
    spent_s = times * (recipe.index_us + recipe.open_us) / 1e6
    assert finding.evidence["spent_s"] == pytest.approx(spent_s)


def test_reads_of_nothing_cost_what_the_recipe_says():
    recipe = RECIPES["reads_of_nothing"]
    finding = next(f for f in find(*made("reads_of_nothing")) if f.code == "empty_reads")
    times = recipe.epochs * recipe.steps * recipe.batch
    assert finding.evidence["empty_reads"] == times
    assert finding.evidence["spent_s"] == pytest.approx(times * recipe.nothing_us / 1e6, rel=0.01)


def test_only_workers_that_start_anew_are_to_be_kept():
    run = vanidl.open_run(DATA / "torch_late_workers")
    anew = Facts(run.trace, run.results)
    lives = [(p.start_ns, p.end_ns) for p in run.trace.processes if p.role == "worker"]
    whole = {"start_ns": min(a for a, _ in lives), "end_ns": max(b for _, b in lives)}
    processes = (replace(p, **whole) if p.role == "worker" else p for p in run.trace.processes)
    kept = replace(anew, trace=replace(run.trace, processes=tuple(processes)))
    (rule,) = (rule for rule in list_rules() if rule.code == "slow_first_step")
    assert "persistent_workers=True" in rule.find(anew).advice
    assert "persistent_workers" not in rule.find(kept).advice
    assert "restarted" not in rule.find(kept).detail
    # Of workers that stay their one start is no excess of epochs, 100 ms for each at most, nor is
    # that each answers before an epoch begins; what is left is no more than the waits.
    table = run.results.steps.table
    first = np.isin(table.step, rule.find(anew).evidence["first_steps"])
    usual = [float(at[~first].mean()) for at in (table.duration_s, table.input_wait_s)]
    beyond = np.minimum(table.duration_s - usual[0], table.input_wait_s - usual[1])[first]
    vars(kept)["workers_of_rank"] = 4
    left_s = rule.find(kept).evidence["excess_s_a_rank"]
    answers_s = (first.sum() - 1) * 4 * bound_handing_over_s()[1]
    assert left_s == pytest.approx(beyond.sum() - 4 * STARTING_S[1] - answers_s)
    assert left_s < rule.find(anew).evidence["excess_s_a_rank"]


@pytest.mark.parametrize(("pids", "is_anew"), [((1, 2), True), ((1, 1), False)])
def test_workers_whose_lives_nobody_recorded_are_told_anew_by_their_fetches(pids, is_anew):
    run, other = (vanidl.open_run(DATA / name) for name in ("torch_late_workers", "torch_fetches"))
    fetches = other.trace.fetches
    assert (fetches.worker >= 0).any()
    epoch = np.where(np.arange(len(fetches)) < len(fetches) // 2, 0, 1)
    two = replace(
        fetches, epoch=epoch, pid=np.where(epoch == 0, *pids), name=np.zeros_like(fetches.name),
        worker=np.zeros_like(fetches.worker),
    )  # fmt: skip
    processes = tuple(replace(p, role="rank") if p.role == "worker" else p
                      for p in run.trace.processes)  # fmt: skip
    facts = Facts(replace(run.trace, processes=processes, fetches=two), run.results, run.breakdown)
    assert facts.has_workers
    assert facts.starts_workers_anew == is_anew


@pytest.mark.parametrize(
    ("batch_nbytes", "sample_nbytes", "is_named"),
    [
        (4 << 20, 4 << 20, True),  # a quarter of the 16 MiB that are read for it
        ((4 << 20) + (1 << 12), 4 << 20, False),
        (1 << 20, 2 << 20, True),
        (1 << 20, (2 << 20) - (1 << 12), False),  # less than 8 MiB are read for one
        (-1, 4 << 20, False),  # none was measured
        (0, 4 << 20, False),
    ],
)
def test_bytes_are_read_for_nothing_where_batches_hold_a_quarter_of_them(
    batch_nbytes, sample_nbytes, is_named
):
    recipe = replace(labeled.CROPS, batch_nbytes=batch_nbytes, sample_nbytes=sample_nbytes)
    trace = trace_of(recipe)
    run = Run(trace, analyse(trace))
    facts = Facts(run.trace, run.results, run.breakdown, run.gains)
    found = next(r for r in list_rules() if r.code == "read_unused").find(facts)
    assert (found is not None) == is_named
    if found is not None:
        read = 4 * sample_nbytes
        assert found.evidence["used_share"] == pytest.approx(batch_nbytes / read)
        assert found.claim.stays == pytest.approx(batch_nbytes / read)
