"""What an input wait consists of, in words."""

from __future__ import annotations

from vanidl.analyses.overlap import RankOverlap
from vanidl.formatting.units import seconds
from vanidl.model.trace import OBJECT

NEGLIGIBLE = 0.05
"""Share of the wait below which metadata calls are not named beside reads and writes."""
_CALLS = "metadata calls (open, stat, close)"
_REQUESTS = "requests that move no data (HEAD, LIST)"


def parts_of_wait(mean: RankOverlap, layer: str) -> str:
    """`982 ms were reads and writes and 918 ms metadata calls (open, stat, close)`."""
    calls = _REQUESTS if layer == OBJECT else _CALLS
    reads = f"{seconds(mean.input_wait_io_s)} were reads and writes"
    if mean.input_wait_metadata_at_most_s is None:
        return f"{reads}; {calls} were not timed"
    return f"{reads} and {metadata_words(mean)} {calls}" if names_metadata(mean) else reads


def names_metadata(mean: RankOverlap) -> bool:
    """Whether metadata calls can be a part of the wait that is worth a word."""
    at_most = mean.input_wait_metadata_at_most_s
    return at_most is not None and at_most >= NEGLIGIBLE * (mean.input_wait_s or 0.0)


def metadata_words(mean: RankOverlap) -> str:
    """`918 ms`, or what is likely and the bound where single calls were not timed."""
    likely, at_most = mean.input_wait_metadata_s, mean.input_wait_metadata_at_most_s
    if likely is None or at_most is None:
        return "unknown"
    if seconds(likely) == seconds(at_most):
        return seconds(likely)
    return (
        f"up to {seconds(at_most)}"
        if not likely
        else (f"about {seconds(likely)}, up to {seconds(at_most)},")
    )
