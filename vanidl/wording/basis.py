"""What counts as compute in a run, in words: all names of the bases of overlap are here."""

from __future__ import annotations

from vanidl.breakdown.overlap import by_loop

_COMPUTE = {
    "device": "device kernels",
    "ops": "CPU operators",
    "loop": "the training loop outside input waits",
    "device+loop": "device kernels where profiled, else the training loop outside input waits",
    "ops+loop": "CPU operators where profiled, else the training loop outside input waits",
}


def compute_name(basis: str | None) -> str:
    """What was recorded as compute: "device kernels"."""
    return _COMPUTE.get(basis or "", "not recorded")


def hidden_words(basis: str | None) -> str:
    """How to say that I/O was hidden, without claiming more than the basis supports."""
    return "overlapped with training" if by_loop(basis) else "was hidden behind compute"


def steps_name(basis: str | None) -> str:
    """What the steps are called: a profiler rarely sees all of them."""
    return "steps" if by_loop(basis) else "profiled steps"
