"""Epochs of runs without a profile: as many as there were and when they were, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.makers.epoch_runs import EpochRun, epoch_run
from tests.makers.runs import analysed
from vanidl.breakdown.phases import Phases

SAME_S = 0.06


def phases_of(run: EpochRun) -> tuple[list[float], Phases]:
    starts, trace = epoch_run(run)
    phases = analysed(trace).phases
    assert phases is not None
    return starts, phases


def assert_found(run: EpochRun) -> None:
    starts, phases = phases_of(run)
    assert [phase.start_s for phase in phases.epochs] == pytest.approx(starts, abs=SAME_S), run


LOADERS = {
    "no workers": EpochRun(workers=0),
    "persistent workers": EpochRun(workers=3),
    "workers again": EpochRun(persistent=False),
    "ranks, shared out again": EpochRun(ranks=2),
    "ranks with a part each": EpochRun(ranks=2, split="fixed"),
    "three ranks in order": EpochRun(ranks=3, shuffled=False),
    "one file": EpochRun(one_file=True),
    "no offsets": EpochRun(offsets=False, workers=3),
}
CHANGES: dict[str, dict[str, object]] = {
    "two": {"epochs": 2},
    "twelve": {"epochs": 12, "samples": 36},
    "stopped early": {"last": 0.4},
    "dropped last batches": {"dropped": 0.1, "samples": 80},
    "no pause": {"pause": 0},
    "several reads a sample": {"pieces": 4},
    "validation": {"validation": 4},
    "validation that is tried first": {"validation": 6, "sanity": 2},
    "headers first": {"scan": True},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("loader", LOADERS)
def test_epochs_are_those_that_ran(loader: str, change: str) -> None:
    assert_found(replace(LOADERS[loader], **CHANGES[change]))  # type: ignore[arg-type]


@pytest.mark.parametrize("samples", [2, 8])
@pytest.mark.parametrize("shuffled", [False, True])
def test_few_files_that_persistent_workers_read_whole(samples: int, shuffled: bool) -> None:
    assert_found(EpochRun(samples=samples, batch=1, shuffled=shuffled, pieces=4))


@pytest.mark.parametrize("loader", [name for name in LOADERS if name != "workers again"])
@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 1},
        {"epochs": 1, "scan": True},
        {"epochs": 1, "validation": 6, "sanity": 2},
        {"split": "replacement"},
        {"dropped": 0.7, "shuffled": True, "split": "anew"},
        {"dropped": 0.7, "shuffled": True, "split": "anew", "samples": 120, "epochs": 4},
    ],
    ids=str,
)
def test_none_is_invented_and_the_reason_is_said(loader: str, change: dict[str, object]) -> None:
    _, phases = phases_of(replace(LOADERS[loader], **change))  # type: ignore[arg-type]
    assert phases.epochs == ()
    assert phases.no_epochs
    if loader != "no offsets":  # what was read twice is not known without
        assert ("times over" in phases.no_epochs) == (change.get("epochs", 3) != 1)


@given(
    st.builds(
        EpochRun,
        epochs=st.integers(1, 6),
        samples=st.sampled_from([40, 80]),
        shuffled=st.booleans(),
        workers=st.integers(0, 4),
        ranks=st.integers(1, 3),
        split=st.sampled_from(["anew", "fixed"]),
        last=st.floats(0.3, 1),
        one_file=st.booleans(),
        validation=st.sampled_from([0, 5]),
        pause=st.sampled_from([0, 50]),
        seed=st.integers(0, 1000),
    )
)
@settings(max_examples=25, deadline=None)
def test_any_number_of_epochs_is_found_or_none(run: EpochRun) -> None:
    starts, phases = phases_of(run)
    expected = starts if run.epochs > 1 else []
    assert len(phases.epochs) in (len(expected), 0)
    if phases.epochs:
        assert [p.start_s for p in phases.epochs] == pytest.approx(expected, abs=2 * SAME_S)
