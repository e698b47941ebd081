"""What an input wait consists of, in words."""

from __future__ import annotations

from vanidl.analyses.fetching import WaitParts
from vanidl.analyses.overlap import RankOverlap
from vanidl.formatting.units import change, seconds
from vanidl.model.trace import OBJECT

NEGLIGIBLE = 0.05
"""Share of the wait below which metadata calls are not named beside reads and writes."""
_CLEAR = 0.1
_CALLS = "metadata calls (open, stat, close)"
_REQUESTS = "requests that move no data (HEAD, LIST)"


def parts_of_wait(mean: RankOverlap, layer: str) -> str:
    """`982 ms were reads and writes and 918 ms metadata calls (open, stat, close)`."""
    calls = _REQUESTS if layer == OBJECT else _CALLS
    some = bool(mean.input_wait_io_s)
    reads = f"{io_words(mean)} were" if some else "none was"
    reads += " reads and writes" if some else " reading or writing"
    if mean.input_wait_metadata_at_most_s is None:
        return f"{reads}; {calls} were not timed"
    if not names_metadata(mean):
        return reads
    took = metadata_words(mean)
    return f"{reads} and {took} {calls}" if some else f"{reads}, and {took} were {calls}"


def io_words(mean: RankOverlap) -> str:
    """`15.6 ms`, and what the clocks leave open of it where that is more than a tenth of it."""
    amount, between = seconds(mean.input_wait_io_s), open_words(mean)
    same = mean.input_wait_io_s == mean.in_wait_s  # else some of it lies in waits that starve none
    return f"{amount} ({between} by what the clocks leave open)" if between and same else amount


def open_words(mean: RankOverlap) -> str:
    """`6.88 to 68.7 ms` of I/O in waits; nothing where the clocks settle it to a tenth."""
    low, high = mean.in_wait_at_least_s, mean.in_wait_at_most_s
    if low is None or high is None or not mean.in_wait_s or high - low <= _CLEAR * mean.in_wait_s:
        return ""
    return change(low, high)


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


_DECODING = "decoding (__getitem__ without I/O)"
_OR_UNRECORDED = "decoding, or I/O that was not recorded"
KNOWN_PARTS = (
    ("reads_s", "reading and writing"),
    ("metadata_s", "metadata calls"),
    ("decoding_s", _DECODING),
    ("samples_s", "__getitem__ (its I/O was not recorded)"),
    ("collating_s", "collating"),
    ("collate_s", "collating"),
    ("not_begun_s", "before a worker began"),
    ("delivery_s", "delivery from worker to training process"),
    ("rest_s", "starting workers and ending epochs"),
)
"""Fields of `WaitParts`, and what they are called in a sentence."""

_WORTH = 0.02  # of the wait: shorter parts are not named


def known_parts(parts: WaitParts, *, whole: bool) -> str:
    """`1.20 s reading and writing, 180 ms collating`: what is worth naming, longest first.

    Args:
        parts: the parts of the wait.
        whole: whether all I/O was recorded; what is missing of it is taken for decoding.
    """
    return ", ".join(_named(parts, whole=whole))


def longest_parts(parts: WaitParts, *, whole: bool) -> str:
    """The same of the three longest."""
    return ", ".join(_named(parts, whole=whole)[:3])


def _named(parts: WaitParts, *, whole: bool) -> list[str]:
    traced = parts.reads_s is not None
    left_out = {"samples_s", "collate_s"} if traced else {"collating_s"}
    known = [
        (value, words)
        for name, words in KNOWN_PARTS
        if name not in left_out and (value := getattr(parts, name)) is not None
    ]
    worth = [(value, words) for value, words in known if value >= _WORTH * parts.wait_s > 0]
    longest = sorted(worth, key=lambda part: -part[0])
    return [
        f"{seconds(value)} {words if whole or words != _DECODING else _OR_UNRECORDED}"
        for value, words in longest
    ]
