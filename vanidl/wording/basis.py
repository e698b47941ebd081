"""What counts as compute in a run, in words: the one place that names the bases of overlap."""

from __future__ import annotations

from vanidl.breakdown.overlap import by_loop

_COMPUTE = {
    "device": "device kernels",
    "ops": "CPU operators",
    "loop": "the loop while it did not wait for input",
    "device+loop": "device kernels where profiled, else the loop while it did not wait for input",
    "ops+loop": "CPU operators where profiled, else the loop while it did not wait for input",
}


def compute_name(basis: str | None) -> str:
    """What was recorded as compute: "device kernels"."""
    return _COMPUTE.get(basis or "", "not recorded")


def hidden_words(basis: str | None) -> str:
    """How to say that I/O was hidden, without claiming more than the basis shows."""
    return "ran while training did not wait" if by_loop(basis) else "was hidden behind compute"


def steps_name(basis: str | None) -> str:
    """What the steps are called: those that a profiler saw are rarely all."""
    return "steps" if by_loop(basis) else "profiled steps"
