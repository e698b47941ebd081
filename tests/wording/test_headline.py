from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.accounts import account_of
from tests.makers.results import EXAMPLES, Example, Shape, everything
from vanidl.breakdown import Breakdown
from vanidl.breakdown.account import Column
from vanidl.model.warnings import WARNING, Notice
from vanidl.wording.account import (
    describe_storage,
    describe_waits,
    find_main_cause,
)
from vanidl.wording.cells import settle
from vanidl.wording.headline import Headline, describe_beside, make_headline


def answer(made: Example) -> Headline:
    return make_headline(made.trace, made.results, account_of(made))


def said(name: str) -> str:
    return str(answer(EXAMPLES[name]()))


def with_overlap(name: str, **changes):
    """The example with values of the mean (and of the only rank) changed."""
    made = EXAMPLES[name]()
    overlap = made.overlap
    own = {k: v for k, v in changes.items() if hasattr(overlap, k)}
    rank = {k: v for k, v in changes.items() if k not in own}
    rows = tuple(replace(row, **rank) for row in overlap.per_rank)
    overlap = replace(overlap, mean=replace(overlap.mean, **rank), per_rank=rows, **own)
    return replace(made, overlap=overlap)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_run_has_an_answer(name):
    result = answer(EXAMPLES[name]())
    assert result.title.endswith(".")
    assert all(sentence.endswith(".") for sentence in result.support)
    assert "None" not in str(result)
    assert "nan" not in str(result)


def test_a_wait_that_is_io_and_nothing_hidden():
    text = said("one_rank")
    assert text.startswith(
        "Training waited 14.0 s of 24.8 s (56 %) for input; of that 9.58 s storage, "
    )
    assert "none of the I/O in profiled steps was hidden behind compute" in text


def test_a_wait_that_is_mostly_not_io():
    text = said("decoding")
    assert "; of that 3.05 s decoding or other work of the loader, 94.2 ms storage; " in text


def test_losses_of_records_are_named_where_the_wait_is_not_io():
    made = EXAMPLES["decoding"]()
    lossy = EXAMPLES["many_ranks"]().results.coverage
    text = answer(made.changed(coverage=lossy)).title
    assert "or I/O that was not recorded" in text


def test_several_ranks_name_worst_and_lost():
    text = said("full")
    assert "averaged over 4 ranks" in text
    assert "The longest wait was 18.4 s (rank 3); lost to input: 20.4 s" in text


def test_unknown_wait_is_not_zero():
    text = said("no_wait_spans")
    assert text.startswith("Input wait was not recorded")
    assert "waited" not in text


def test_no_profile():
    text = said("no_profile")
    assert "per rank on average, " in text
    assert "of the 988 s run; whether it was hidden is not known: no profiler trace." in text


def test_profile_without_io():
    assert "how much of that was storage is not known: no single operation was traced" in said(
        "profile_only"
    )


def test_counters_only_names_both_layers():
    text = said("counters_only")
    assert "By its counters, the run read 1.51 GiB and wrote 265 KiB through POSIX" in text
    assert "single operations were not traced, so whether it was hidden is not known." in text
    assert "STDIO moved 954 MiB and POSIX 1.51 GiB" in text


def test_counters_of_a_run_that_is_mostly_stdio_name_it_first():
    made = EXAMPLES["counters_only"]()
    small = replace(made.results.summary, bytes_read=4096, storage_bytes_read=8192)
    found = answer(made.changed(summary=small))
    assert "through POSIX" in found.title
    assert "wrote 954 MiB through STDIO; " in found.title
    assert not any("STDIO moved" in sentence for sentence in found.support)


def test_nothing_was_read():
    assert said("nothing") == "No POSIX operation was recorded during the 31.4 s run."


def test_zero_wait():
    text = str(answer(with_overlap("one_rank", input_wait_s=0.0, input_wait_io_s=0.0)))
    assert text.startswith("Training did not wait for input; ")


def test_no_io_in_the_window():
    text = answer(
        with_overlap("one_rank", hidden_fraction=None, input_wait_io_s=0.0, input_wait_rest_s=13.98)
    ).title
    assert "none was storage" in text
    assert "no I/O was recorded during the profiled steps" in text


def test_hidden_unknown_without_compute():
    text = answer(with_overlap("one_rank", hidden_s=None, hidden_fraction=None, basis=None)).title
    assert "whether I/O was hidden is not known: the profile holds no compute" in text
    text = answer(with_overlap("one_rank", hidden_s=None, hidden_fraction=None)).title
    assert text.endswith("whether I/O was hidden is not known.")


def test_mostly_unobserved():
    text = str(answer(with_overlap("one_rank", io_s=10.0, unobserved_s=9.0)))
    assert "90 % of the I/O time (9.00 s of 10.0 s) lies outside the profiled steps" in text


def test_truncated_traces_give_lower_bounds():
    made = EXAMPLES["full"]()
    layer = replace(made.results.coverage.layers[0], traced_fraction=0.61, partial=True)
    coverage = replace(made.results.coverage, complete=False, layers=(layer,))
    text = str(answer(made.changed(coverage=coverage)))
    assert "61 % of the POSIX operations were traced: times of I/O are lower bounds." in text


@pytest.mark.parametrize(
    ("read", "written", "said"),
    [(0, 1 << 20, "the run read nothing and wrote 1 MiB through"),
     (0, 0, "the run read nothing and wrote nothing through"),
     (None, 2048, "the run wrote 2 KiB through"),
     (None, None, "the run did I/O through")],
)  # fmt: skip
def test_no_bytes_are_nothing_and_unrecorded_bytes_are_not_named(read, written, said):
    made = EXAMPLES["counters_only"]()
    summary = replace(made.results.summary, bytes_read=read, bytes_written=written)
    assert said in str(answer(made.changed(summary=summary)))


def test_a_cut_trace_without_an_operation_of_the_steps_says_nothing_of_their_waits():
    """It ended before them, as one with full buffers does: that no I/O is seen is no finding."""
    none = {"io_s": 9.0, "unobserved_s": 9.0, "in_wait_s": 0.0, "hidden_s": 0.0}
    made = with_overlap("one_rank", **none, input_wait_io_s=0.0, hidden_fraction=None)
    assert "the trace is not whole" not in str(answer(made))
    notice = Notice("truncated", "The trace is cut.", WARNING)
    cut = replace(made.results.coverage, warnings=(notice,))
    text = str(answer(made.changed(coverage=cut)))
    assert "how much of that was storage is not known: the trace is not whole" in text
    assert "none of that" not in text
    assert "no I/O was recorded during" not in text


def test_profile_over_counters_names_what_was_counted():
    made = EXAMPLES["profile_only"]()
    counted = EXAMPLES["counters_only"]().results.summary
    text = str(answer(made.changed(summary=counted)))
    assert "By its counters, the run read 1.51 GiB" in text


def test_ranks_without_a_profile_are_not_averaged_in_silence():
    made = EXAMPLES["full"]()
    overlap = replace(made.overlap, ranks_observed=1, per_rank=made.overlap.per_rank[:1])
    text = answer(replace(made, overlap=overlap)).title
    assert "averaged over 1 of 4 ranks" in text


def test_profile_that_does_not_fit_the_io():
    made = EXAMPLES["full"]()
    away = tuple(replace(p, clock_method="not aligned") for p in made.trace.profiles)
    text = answer(replace(made, trace=replace(made.trace, profiles=away), overlap=None)).title
    assert text.endswith("is not known: the profile could not be laid over it.")


def test_profile_without_steps_and_waits_is_not_called_misaligned():
    made = EXAMPLES["full"]()
    text = answer(replace(made, overlap=None)).title
    assert text.endswith("the profile holds neither marked steps nor two input waits.")


def test_device_busy_during_the_wait():
    text = str(answer(with_overlap("one_rank", basis="device", starving_wait_s=4.0)))
    assert "The device stood idle during 4.00 s of the wait" in text


def test_ranks_that_wait_for_the_input_of_others():
    made = everything(Shape(ranks=2))
    fast, slow = made.overlap.per_rank
    fast = replace(fast, input_wait_s=0.4, communication_s=11.0)
    slow = replace(slow, input_wait_s=12.0, communication_s=0.2)
    overlap = replace(made.overlap, per_rank=(fast, slow))
    text = str(answer(replace(made, overlap=overlap)))
    assert "1 rank of 2 waited little for input of their own but spent up to 11.0 s" in text
    assert "communication" in text


def steps_profiled(profiled: int, counted: int):
    made = EXAMPLES["one_rank"]()
    steps = replace(made.results.steps, per_rank_max=profiled, counted=counted)
    return made.changed(steps=steps)


@pytest.mark.parametrize("profiled", [89, 90, 100])
def test_nine_tenths_of_the_steps_are_nearly_all(profiled):
    text = answer(steps_profiled(profiled, 100)).title
    assert text.startswith(f"In {profiled} of about 100 steps, t") == (profiled < 90)


@pytest.mark.parametrize("idle_s", [94.9, 95.0, 100.0])
def test_a_device_that_idles_during_all_but_a_twentieth_of_the_wait_is_not_named(idle_s):
    changes = {"basis": "device", "input_wait_s": 100.0, "window_s": 200.0}
    text = str(answer(with_overlap("one_rank", **changes, starving_wait_s=idle_s)))
    assert ("The device stood idle during 94.9 s of the wait" in text) == (idle_s < 95)


@pytest.mark.parametrize("traced", [0.0, 0.01, 0.9899, 0.99, 1.0])
def test_times_are_lower_bounds_below_99_of_100_traced_operations(traced):
    made = EXAMPLES["one_rank"]()
    (layer, *others) = made.results.coverage.layers
    assert layer.layer == made.results.summary.layer
    layers = (replace(layer, traced_fraction=traced), *others)
    text = str(answer(made.changed(coverage=replace(made.results.coverage, layers=layers))))
    assert ("times of I/O are lower bounds" in text) == (0 < traced < 0.99)


@pytest.mark.parametrize("outside_s", [4.9, 5.0, 5.1, 10.0])
def test_io_outside_of_the_steps_is_named_where_it_is_more_than_half(outside_s):
    text = str(answer(with_overlap("one_rank", io_s=10.0, unobserved_s=outside_s)))
    assert ("neither hidden nor exposed" in text) == (outside_s > 5)


@pytest.mark.parametrize(
    ("own_s", "communication_s", "window_s", "named"),
    [
        (4.9, 11.0, 100.0, True),
        (5.0, 11.0, 90.0, False),  # half of the longest wait is not little
        (4.0, 3.0, 100.0, False),  # and half of what is missing is not most of it
        (4.0, 3.1, 100.0, True),
        (4.0, 11.0, 119.0, True),
        (4.0, 11.0, 120.0, False),  # a twentieth of the window is not worth a word
    ],
)
def test_a_rank_waits_for_others_where_it_waits_little_itself_and_long_in_communication(
    own_s, communication_s, window_s, named
):
    made = everything(Shape(ranks=2))
    fast, slow = made.overlap.per_rank
    fast = replace(fast, input_wait_s=own_s, communication_s=communication_s, window_s=window_s)
    slow = replace(slow, input_wait_s=10.0, communication_s=0.0)
    overlap = replace(made.overlap, per_rank=(fast, slow))
    text = str(answer(replace(made, overlap=overlap)))
    assert ("waited little for input of their own" in text) == named


def waits(**cells: tuple[float, float]) -> Breakdown:
    """One rank whose waits of 10 s hold these cells, in seconds."""
    columns = {"input_wait/": Column(*(np.array([10_000_000_000]),) * 2, 1e10, 1e10)}
    for cause, ends in cells.items():
        low, high = (round(end * 1e9) for end in ends)
        column = Column(np.array([low]), np.array([high]), float(low), float(high))
        columns[f"input_wait/{cause.replace('__', '.')}"] = column
    return Breakdown(("rank 0",), (0,), 20_000_000_000, np.array([1]), columns)


@pytest.mark.parametrize(("calls_s", "named"), [(3.9, False), (4.0, True)])
def test_storage_that_is_half_metadata_calls_is_called_so(calls_s, named):
    account = waits(storage=(8, 8), storage__metadata=(calls_s, calls_s), input_cpu=(0, 2))
    assert ("mostly metadata calls" in settle(describe_waits(account, whole=True))) == named


@pytest.mark.parametrize(("high_s", "known"), [(6.0, True), (6.1, False)])
def test_waits_of_which_more_than_half_is_open_are_not_divided(high_s, known):
    account = waits(storage=(1, high_s), input_cpu=(0, 9))
    said = settle(describe_waits(account, whole=True))
    assert ("how much of that was storage is not known, at least 1.00 s" in said) != known
    assert ("1.00 s to 6.00 s storage" in said) == known


@pytest.mark.parametrize(("workers_s", "named"), [(0.19, False), (0.2, True)])
def test_parts_of_a_wait_are_named_from_a_fiftieth_of_it(workers_s, named):
    account = waits(storage=(5, 5), workers=(workers_s, workers_s), input_cpu=(0, 5))
    assert ("starting workers" in settle(describe_waits(account, whole=True))) == named


@pytest.mark.parametrize(("high_s", "range_"), [(5.2, False), (5.3, True)])
def test_a_range_is_said_where_its_ends_are_a_fiftieth_of_the_waits_apart(high_s, range_):
    account = waits(storage=(5, high_s), input_cpu=(0, 5))
    assert ("5.00 s to 5.30 s storage" in settle(describe_waits(account, whole=True))) == range_


@pytest.mark.parametrize(("storage_s", "code"), [(4.9, ""), (5.0, "storage")])
def test_waits_are_mostly_what_is_half_of_them(storage_s, code):
    assert find_main_cause(waits(storage=(storage_s, 6), input_cpu=(0, 5.1))) == code


def test_counters_without_any_time_cost_nothing():
    example = EXAMPLES["counters_only"]()
    account = account_of(example)
    none = Column(*(np.zeros(len(account.ranks), np.int64),) * 2, 0.0, 0.0, ("counters",))
    account = replace(account, columns={**account.columns, "run/storage": none})
    assert describe_storage(example.trace, account).startswith(
        "No time was counted in I/O during the "
    )


@pytest.mark.parametrize(
    ("other_s", "child_s", "words"),
    [
        (8.0, 8.0, ""),  # less than the waits, which the title speaks of
        (12.0, 5.9, "time between steps 12.0 s."),
        (12.0, 6.0, "time between steps 12.0 s (at least 6.00 s waiting for a child process)."),
        (12.0, 12.0, "time between steps 12.0 s (12.0 s waiting for a child process)."),
    ],
)
def test_what_runs_between_steps_is_named_with_what_most_of_it_was(other_s, child_s, words):
    ends = {"step/": (10, 10), "phase/other": (other_s,) * 2}
    ends["phase/other/blocked.child"] = child_s, max(child_s, min(other_s, 11.0))
    columns = dict(waits(storage=(8, 8)).columns)
    for name, (low, high) in ends.items():
        low, high = low * 1e9, high * 1e9
        columns[name] = Column(np.array([int(low)]), np.array([int(high)]), low, high)
    account = replace(waits(), columns=columns, window_ns=40_000_000_000)
    text = settle(describe_beside(account, ""))
    assert text == (f"Of the 40.0 s run outside these steps: {words}" if words else "")
