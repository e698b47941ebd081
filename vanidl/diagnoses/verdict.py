"""Whether anything is to be done, in a sentence, where the run shows that nothing is."""

from __future__ import annotations

from collections.abc import Sequence

from vanidl.analyses import Results
from vanidl.diagnoses.diagnosis import Diagnosis
from vanidl.findings.finding import LOW
from vanidl.findings.waiting import BOUND_SHARE
from vanidl.model.warnings import LOWER_BOUNDS, serious_codes

NOTHING_TO_FIX = "Input keeps up: nothing to fix."
LITTLE_TO_GAIN = "Input keeps up: only small gains are left."


def verdict(results: Results, diagnoses: Sequence[Diagnosis]) -> str:
    """The sentence; "" where something is to be fixed, or not enough was recorded to say so.

    It needs input waits that were recorded, are under a tenth of the time, and no I/O missing.
    """
    overlap = results.overlap
    share = overlap.input_wait_share if overlap is not None else None
    if share is None or share >= BOUND_SHARE:
        return ""
    if LOWER_BOUNDS & serious_codes(results.coverage.warnings):
        return ""
    if any(d.severity != LOW for d in diagnoses):
        return ""
    return LITTLE_TO_GAIN if diagnoses else NOTHING_TO_FIX
