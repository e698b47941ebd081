"""Synthetic comparisons in every shape that their outputs must survive."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

from tests.makers.results import EXAMPLES, Example, Shape, everything
from vanidl.compare import Comparison, Sample, Side, compare


def sample(example: Example, path: str = "run", **more: object) -> Sample:
    trace = example.trace
    labels = tuple(trace.processes[i].label for i in trace.ranks)
    return Sample(path, trace.job, labels, example.results, account=example.account, **more)


def one(name: str, letter: str, title: str = "") -> Side:
    return Side(letter, title or name, (sample(EXAMPLES[name](), f"runs/{name}"),))


def repeats(letter: str, step_s: float, runs: int = 5, spread: float = 0.01) -> Side:
    """Paired runs whose steps and wall times scatter around their level."""
    random = np.random.default_rng(ord(letter))
    factors = np.exp(random.normal(0, spread, runs))
    samples = [
        sample(
            everything(Shape(ranks=2, step_s=step_s * float(f), io_of_wait=0.5)),
            f"{letter.lower()}-{i + 1}",
            wall_time_s=31 * float(f) * step_s,
            pair=i + 1,
        )
        for i, f in enumerate(factors)
    ]
    return Side(letter, f"python train.py --loader {letter}", tuple(samples))


def timed(letter: str, seconds: Sequence[float | None], *, paired: bool = True) -> Side:
    """Runs of which only the wall time is known."""
    samples = tuple(
        Sample(f"{letter}{i}", None, (), None, s, i + 1 if paired else None, "nothing was read")
        for i, s in enumerate(seconds)
    )
    return Side(letter, f"command {letter}", samples)


def unlike() -> Comparison:
    """Compute known in different ways, losses on one side, unequal numbers of steps."""
    made = EXAMPLES["full"]()
    other = replace(made, overlap=replace(made.overlap, basis="device"))
    return compare([one("many_ranks", "A"), Side("B", "device", (sample(other),))])


_COMPARISONS: dict[str, Callable[[], Comparison]] = {
    "one_each": lambda: compare([one("one_rank", "A"), one("decoding", "B")]),
    "slower": lambda: compare(
        [repeats("A", 0.62), repeats("B", 0.72)],
        [("page cache", "warm: caches left alone"), ("order", "B A A B")],
    ),
    "alike": lambda: compare([repeats("A", 0.62), repeats("B", 0.62)]),
    "three": lambda: compare([repeats("A", 0.62), repeats("B", 0.5), repeats("C", 0.7)]),
    "wait_not_recorded": lambda: compare([one("full", "A"), one("no_wait_spans", "B")]),
    "steps_not_recorded": lambda: compare([one("full", "A"), one("no_profile", "B")]),
    "counters_only": lambda: compare([one("counters_only", "A"), one("counters_only", "B")]),
    "profile_only": lambda: compare([one("profile_only", "A"), one("full", "B")]),
    "nothing": lambda: compare([one("nothing", "A"), one("nothing", "B")]),
    "wall_time_only": lambda: compare([timed("A", [1.0, 1.01, 0.99]), timed("B", [2, 2.01, 1.99])]),
    "two_pairs": lambda: compare([timed("A", [1.0, 1.01]), timed("B", [2, 2.01])]),
    "unlike": unlike,
    "untraced": lambda: compare([one("full", "A"), one("untraced", "B")]),
    "undated_steps": lambda: compare([one("undated_steps", "A"), one("full", "B")]),
    "many_ranks": lambda: compare([one("many_ranks", "A"), one("many_ranks", "B")]),
    "hostile": lambda: compare(
        [
            one("hostile", "A", "</script><script>alert(1)</script>"),
            one("hostile", "B", "<img src=x onerror=alert(1)> {{7*7}} %{x} \u202e\n"),
        ],
        [("page cache", "<b>bold</b>")],
    ),
    "many_sides": lambda: compare([one("one_rank", letter) for letter in "ABCDEFG"]),
}

EXAMPLE_COMPARISONS = {name: cache(make) for name, make in _COMPARISONS.items()}
"""Name -> the comparison, made once: records are frozen, all tests share them."""
