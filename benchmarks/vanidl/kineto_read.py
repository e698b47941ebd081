"""Time and peak memory of `read_trace` against `json.load` on the same file.

The events of a trace are repeated until the text has the wanted size. Each reader runs in a
process of its own, the two in turn; medians of wall time count. Prints a line for each reader
and the ratios with their limits; exit status 1 where a limit is exceeded. The peak
is that of the process and of its largest child together.

    python -m benchmarks.vanidl.kineto_read [TRACE] [--megabytes 1000] [--repeats 3] [--gzip]

TRACE is a `.pt.trace.json[.gz]`; without it a synthetic trace of steps is written. Note that
`json.load` needs about five times the size of the text in memory.
"""

from __future__ import annotations

import argparse
import gzip
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import Measured, in_child, interleaved, medians
from tests.makers.pytorch_traces import pretty, steps, trace

TIME_RATIO_LIMIT = 1.0
PEAK_LIMIT_MB = 500

READERS = {
    "json.load": """
def run():
    import gzip, json, sys
    path = sys.argv[1]
    file = gzip.open(path) if path.endswith(".gz") else open(path, "rb")
    return len(json.load(file)["traceEvents"])
""",
    "read_trace": """
def run():
    import sys
    from vanidl.readers.pytorch.trace import read_trace
    return len(read_trace(sys.argv[1]).kind)
""",
}


def inflate(trace: bytes, path: Path, nbytes: int) -> None:
    """Write a trace with its events repeated, in the layout that it has."""
    opening = trace.index(b'"traceEvents"')
    start = trace.index(b"[", opening) + 1
    end = trace.rindex(b"]")
    events = trace[start:end]
    with gzip.open(path, "wb", compresslevel=1) if path.suffix == ".gz" else path.open("wb") as out:
        out.write(trace[:start])
        out.write(events)
        for _ in range(nbytes // len(events)):
            out.write(b"," + events)
        out.write(trace[end:])


def synthetic() -> bytes:
    """Text of a small trace of today's dialect."""
    return pretty(trace(steps(2000))).encode()


def compare(path: Path, repeats: int) -> bool:
    """Print what was measured; whether both limits hold."""
    found = interleaved({r: partial(in_child, code, path) for r, code in READERS.items()}, repeats)
    seconds = medians({reader: [run.wall_s for run in runs] for reader, runs in found.items()})
    peak = {reader: max(map(peak_mb, runs)) for reader, runs in found.items()}
    for reader, runs in found.items():
        print(
            f"{reader:18} {seconds[reader]:8.2f} s {peak[reader]:8.0f} MB peak  "
            f"{runs[0].value:,.0f} kept"
        )
    ratio = seconds["read_trace"] / seconds["json.load"]
    own_peak = peak["read_trace"]
    print(f"time ratio {ratio:.2f} (limit {TIME_RATIO_LIMIT})")
    print(f"peak {own_peak:.0f} MB (limit {PEAK_LIMIT_MB} MB)")
    return ratio <= TIME_RATIO_LIMIT and own_peak <= PEAK_LIMIT_MB


def peak_mb(run: Measured) -> float:
    """Of the process and its largest child."""
    return (run.peak_nbytes + run.worker_peak_nbytes) / 1024**2


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", nargs="?", type=Path)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    text = options.trace.read_bytes() if options.trace else synthetic()
    text = gzip.decompress(text) if text.startswith(b"\x1f\x8b") else text
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("large.pt.trace.json" + (".gz" if options.gzip else ""))
        inflate(text, path, options.megabytes * 1_000_000)
        print(f"{len(text) / 1e6:.0f} MB trace repeated to about {options.megabytes} MB of text")
        return 0 if compare(path, options.repeats) else 1


if __name__ == "__main__":
    sys.exit(main())
