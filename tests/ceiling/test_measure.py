"""The ceiling of runs whose compute and input are known by construction."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from tests.makers.step_journals import MS, START
from vanidl.ceiling import measure
from vanidl.ceiling.measure import FEWEST, cost_of, kept
from vanidl.errors import InputError
from vanidl.readers.steps.journal import read_journal
from vanidl.record.injected.vanidl_steps import journal as written

COMPUTE, INPUT, COPY = 40, 60, 1  # ms
WARM_UP, STEPS = 5, 45


def journal(folder: Path, replayed_from: int | None, rank: int = 0, *, ends: int = STEPS) -> Path:
    """A run whose step k takes COMPUTE after INPUT or, from a step on, after COPY.

    Its first pass ends after so many steps.
    """
    (folder / "steps").mkdir(parents=True, exist_ok=True)
    events = written.Journal(str(folder / "steps"))
    at = START
    if replayed_from is not None:
        text = {"replay": 0, "class": "DataLoader", "state": "warm-up", "needed": 5}
        events.describe(text)
        events.describe({**text, "state": "on", "kept": 5, "nbytes": 500, "length": STEPS})
    for k in range(STEPS):
        free = replayed_from is not None and k >= replayed_from
        end = at + (COPY if free else INPUT) * MS
        if free:
            events.add(written.REPLAY, 0, at, end)
        epoch, place = divmod(k, ends)
        events.add(written.WAIT, epoch << written.EPOCH_SHIFT | place, at, end)
        at = end + COMPUTE * MS
        events.add(written.OPTIMIZER, 0, at, at)
    events.add(written.END, STEPS, at, at)
    events.close()
    (path,) = (folder / "steps").glob(f"*-{os.getpid()}.steps")
    return path.rename(path.with_name(f"rank{rank}.steps"))


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(written.RANKS_VARIABLE, "RANK")

    def run(folder: Path, replayed_from: int | None, ranks: int) -> Path:
        for rank in range(ranks):
            monkeypatch.setenv("RANK", str(rank))
            journal(folder, replayed_from, rank)
        return folder

    return run


def test_the_cost_is_what_was_put_in(tmp_path: Path) -> None:
    journal(tmp_path / "run", None)
    journal(tmp_path / "free", WARM_UP)
    found = measure(tmp_path / "run", tmp_path / "free")
    assert (found.ranks, found.steps) == (1, STEPS - WARM_UP)
    assert found.step_s == pytest.approx((COMPUTE + INPUT) / 1e3)
    assert found.free_s == found.median_free_s == pytest.approx((COMPUTE + COPY) / 1e3)
    assert found.copying_s == pytest.approx(COPY / 1e3)
    assert found.cost == pytest.approx(1 - (COMPUTE + COPY) / (COMPUTE + INPUT))
    assert found.low == pytest.approx(found.cost)  # all steps are alike
    assert found.high == pytest.approx(1 - COMPUTE / (COMPUTE + INPUT))  # copying may be input
    assert found.shortest_s == pytest.approx(COMPUTE / 1e3)
    assert (found.replayed, found.kept, found.kept_nbytes, found.remarks) == (1, 5, 500, ())


def test_ranks_are_taken_together(tmp_path: Path, ranked) -> None:
    ranked(tmp_path / "run", None, 3)
    ranked(tmp_path / "free", WARM_UP, 3)
    found = measure(tmp_path / "run", tmp_path / "free")
    assert (found.ranks, found.steps, found.kept) == (3, STEPS - WARM_UP, 15)
    ranked(tmp_path / "fewer", WARM_UP, 2)
    with pytest.raises(InputError, match=r"same ranks in both runs, found \[0, 1, 2\] and"):
        measure(tmp_path / "run", tmp_path / "fewer")


def test_a_run_that_kept_nothing_is_refused_in_words(tmp_path: Path) -> None:
    journal(tmp_path / "run", None)
    journal(tmp_path / "late", STEPS - FEWEST + 1)
    with pytest.raises(InputError, match=f"at least {FEWEST} steps with batches from memory"):
        measure(tmp_path / "run", tmp_path / "late")
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "run.json").write_text("{}")
    with pytest.raises(InputError, match="expected steps recorded by vanidl record"):
        measure(tmp_path / "run", tmp_path / "none")


def test_steps_after_which_the_runs_take_other_batches_are_not_compared(tmp_path: Path) -> None:
    journal(tmp_path / "run", None, ends=30)
    journal(tmp_path / "free", WARM_UP)  # from memory data do not end
    found = measure(tmp_path / "run", tmp_path / "free")
    assert found.steps == 30 - WARM_UP
    (remark,) = found.remarks
    assert "the next one takes batch 1 of pass 2 in the run as it trains, batch 31 of" in remark
    journal(tmp_path / "short", None, ends=WARM_UP + FEWEST - 1)
    with pytest.raises(InputError, match=r"found 7 steps: 12 steps can be compared .* --epoch-"):
        measure(tmp_path / "short", tmp_path / "free")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ({"length": 1}, "its passes have one batch, and none began after one whose end was"),
        ({"length": 10}, "its one pass has 10 batches, no more than the .* 20: .*--warm-up 5"),
        ({"length": 21}, "its one pass has 21 batches"),  # the last one finds the memory full
        ({"length": 22}, "no pass over it got past the warm-up of 20 batches"),
        ({"endless": True}, "no pass over it got past the warm-up of 20 batches"),
        ({}, "how many batches a pass has is not known before one has ended, .*--epoch-batches N"),
    ],
)  # fmt: skip
def test_why_no_batch_came_from_memory_is_said(
    tmp_path: Path, text: dict[str, object], why: str
) -> None:
    events = written.Journal(str(tmp_path))
    events.add(written.WAIT, 0, START, START + MS)
    for k in range(2):
        events.describe({"replay": k, "class": "L", "dataset": "D", "needed": 20, **text,
                         "state": "on" if k else "warm-up"})  # fmt: skip
    events.close()
    found = kept([read_journal(next(tmp_path.glob("*.steps")))])
    (remark,) = found.remarks
    assert (found.loaders, remark.endswith(" (2 times)")) == (0, True)
    assert re.match(rf"L \(D\) stayed real: {why}", remark)


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_the_interval_holds_the_truth_as_often_as_it_says(noise: float) -> None:
    random = np.random.default_rng(3)
    inside = 0
    for _ in range(300):
        taken = 0.1 * np.exp(noise * random.standard_normal(200))
        free = 0.04 * np.exp(noise * random.standard_normal(200))
        cost, low, high = cost_of(taken, free)
        assert low <= cost <= high
        inside += low - 1e-12 <= 0.6 <= high + 1e-12
    assert inside >= 0.96 * 300
