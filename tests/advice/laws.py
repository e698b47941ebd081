"""What holds for the advice on every run: `python -m tests.advice.laws PATH...` looks at logs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from vanidl.advice.diagnoses import AS_MUCH, BY_CODE, FAILED
from vanidl.advice.facts import ANY, IMBALANCE, INPUT, Claim, Facts
from vanidl.advice.finding import PREDICTED
from vanidl.advice.registry import apply, find_least_share, list_rules
from vanidl.breakdown.account import EPOCH_END
from vanidl.errors import VanidlError
from vanidl.run import Run, open_run

EPSILON = 1e-9


def broken_laws(run: Run) -> Iterator[str]:
    """Which laws the advice on a run breaks, in words; nothing where all hold."""
    facts = Facts(run.trace, run.results, run.breakdown, run.gains)
    for rule in list_rules():
        result, finding = rule.find(facts), apply(rule, facts)
        if finding is None or finding.gain_s is None:
            continue
        low, high = finding.gain_s
        least_s = find_least_share(result.claim) * facts.base_s
        if not 0 <= low <= high == finding.gain_at_most_s or high < least_s:
            yield f"{rule.code}: a gain of {low} to {high} of {facts.base_s} s"
        for name, most_s in _bounds(result.claim, run, facts):
            if high > most_s + EPSILON:
                yield f"{rule.code}: {high} s are above {most_s} s, {name}"
    computed_s = run.breakdown.cell("mean/step/compute").low_ns / 1e9
    for d in run.diagnoses:
        if d.step_s is not None and d.step_s < computed_s - EPSILON:
            yield f"{d.code}: a step of {d.step_s} s, which computes for {computed_s} s"
    yield from _broken_sums(run, facts)
    yield from _broken_orders(run)


def _broken_sums(run: Run, facts: Facts) -> Iterator[str]:
    """Actions that gain more than what their findings are about.

    Ends of epochs and waits do not overlap, so that both are gained; who reads ahead hides all of a
    wait, whatever it went to.
    """
    for d in run.diagnoses:
        gains = [(f.gain_s[1], f.cause == EPOCH_END) for f in d.findings if f.gain_s is not None]
        if d.gain_s is None or not gains:
            continue
        ends, others = (max((g for g, is_end in gains if is_end is kind), default=0.0)
                        for kind in (True, False))  # fmt: skip
        most_s = ends + others
        if d.basis == PREDICTED:
            most_s = max(most_s, (facts.bound(Claim(ANY)) or (0.0, 0.0))[1])
        if d.gain_s[1] > most_s + EPSILON:
            yield f"{d.code}: {d.gain_s[1]} s are above those of its findings"


def _bounds(claim: Claim, run: Run, facts: Facts) -> Iterator[tuple[str, float]]:
    """What no gain of a claim is above, each computed apart from the room that makes gains."""
    if claim.within_s is not None:
        yield "the time of its calls", claim.within_s
    if claim.window == INPUT and run.gains is not None and facts.lost_s is not None:
        gain = run.gains.without(claim.cause or "storage")
        yield "the run without it", (gain.high_ns if claim.cause else gain.touchable_ns) / 1e9
    if claim.window == IMBALANCE:
        column = run.breakdown.columns[f"run/{claim.cause}"]
        yield "slowest - mean", float(column.high.max() - column.low.mean()) / 1e9
    if claim.cause == "storage.metadata" and run.gains is None:
        cell = run.breakdown.cell("mean/run/storage.metadata")
        yield "what metadata calls took", cell.high_ns / 1e9


def _broken_orders(run: Run) -> Iterator[str]:
    gains = [d.gain_s[1] for d in run.diagnoses if d.gain_s is not None and d.code != FAILED]
    if any(gain < (1 - AS_MUCH) * max(gains[k:]) for k, gain in enumerate(gains)):
        yield f"order: {gains}"
    limits = [d.code in BY_CODE and BY_CODE[d.code].limits for d in run.diagnoses]
    if limits != sorted(limits):
        yield "order: what only limits the numbers stands above a change"


def main() -> None:
    """Prints for each log that can be read which laws are broken."""
    count = broken = unread = 0
    for path in map(Path, sys.argv[1:]):
        try:
            found = list(broken_laws(open_run(path)))
        except VanidlError:
            unread += 1
            continue
        count += 1
        broken += bool(found)
        for line in found:
            sys.stdout.write(f"{path}: {line}\n")
    sys.stdout.write(f"{count} runs, {broken} break a law, {unread} cannot be read\n")


if __name__ == "__main__":
    main()
