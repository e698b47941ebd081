"""What a run is said to do, from what its processes do: both sides of every border."""

from __future__ import annotations

import pytest

from vanidl.watch.condition import STALL_S, STALL_STEPS, Activity, State, judge_condition


def process(
    silent_s: float = 0.1,
    within: State | None = None,
    within_s: float = 0.0,
    *,
    steps: int = 100,
    longest_s: float = 0.2,
    trouble: str = "",
    label: str = "rank 0",
) -> Activity:
    """A process whose usual step takes 0.1 s."""
    usual = (0.1, longest_s) if steps else (None, None)
    return Activity(label, steps, *usual, silent_s, within, within_s, trouble)


@pytest.mark.parametrize(
    ("processes", "state"),
    [
        ([], State.STARTING),
        ([process(steps=0)], State.STARTING),
        ([process(3600, steps=0)], State.STARTING),  # no step: nothing tells how long one takes
        ([process()], State.TRAINING),
        ([process(STALL_S - 0.1)], State.TRAINING),
        ([process(STALL_S)], State.STALLED),
        ([process(STALL_STEPS * 9 - 1, longest_s=9)], State.TRAINING),
        ([process(STALL_STEPS * 9, longest_s=9)], State.STALLED),
        ([process(3600, State.SAVING, 3600)], State.SAVING),
        ([process(3600, State.VALIDATING, 3600)], State.VALIDATING),
        ([process(0.9, State.WAITING, 0.9)], State.TRAINING),
        ([process(1.1, State.WAITING, 1.1)], State.WAITING),
        ([process(STALL_S, State.WAITING, STALL_S)], State.STALLED),
        ([process(2, State.WAITING, 2, steps=0)], State.WAITING),
        ([process(40), process(1)], State.TRAINING),  # another goes on
        ([process(40), process(40, State.SAVING, 40)], State.SAVING),  # who waits for whom
        ([process(9), process(9, State.WAITING, 9)], State.WAITING),
        ([process(40), process(40, steps=0)], State.STALLED),
    ],
)
def test_the_state_of_a_run(processes: list[Activity], state: State) -> None:
    assert judge_condition(processes).state is state


def test_a_stall_has_its_reasons() -> None:
    said = str(judge_condition([process(40, State.WAITING, 38, trouble="stopped by a signal")]))
    assert said == (
        "stalled: no event for 40.0 s (rank 0: stopped by a signal, in a wait for input of 38.0 s, "
        "a step takes 100 ms)"
    )


def test_the_rank_that_waits_longest_is_named() -> None:
    ranks = [process(3, State.WAITING, 3), process(5, State.WAITING, 5, label="rank 1")]
    assert str(judge_condition(ranks)) == "waiting for input for 5.00 s (rank 1)"
    assert str(judge_condition(ranks[:1])) == "waiting for input for 3.00 s"


def test_only_what_somebody_should_look_after_alerts() -> None:
    stalled, saving = judge_condition([process(40)]), judge_condition([process(40, State.SAVING)])
    assert stalled.alerts
    assert not stalled.is_over
    assert not saving.alerts
