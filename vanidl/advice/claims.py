"""What a change would take away of a run: words for it, of which the breakdown makes seconds."""

from __future__ import annotations

from dataclasses import dataclass

from vanidl.breakdown.without import EVERYWHERE, Where

INPUT, LOOP, RUN = "input", "loop", "run"
IMBALANCE, BENCHMARK = "imbalance", "benchmark"
"""Windows of claims: the input waits of training (of runs without them the run), its steps outside
of them, the whole run, what the slowest rank takes more than the mean, the result of a benchmark.
Others are phases and parts of steps by name."""

ANY = ""
"""All of a window, whatever it went to."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a change takes away. The seconds of it come from the breakdown, never from a rule.

    `cause` is a cause with or without its part, as "storage.read"; "": all of the window. `stays`
    is the share of it that is still there after the change, and `within_s` how long the calls of a
    rank took that the change is about, where these are a part of the cause. `surely_s`: of what is
    taken away so much at most is gained for sure. `keeps` says in words what stays.
    """

    cause: str
    window: str = INPUT
    where: Where = EVERYWHERE
    stays: float = 0.0
    within_s: float | None = None
    surely_s: float | None = None
    keeps: str = ""

    @property
    def name(self) -> str:
        """Its cause; of all of a window the window."""
        return self.cause or self.window
