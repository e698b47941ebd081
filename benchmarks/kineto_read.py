"""Time and peak memory of `kineto.read_trace` against `json.load` on the same file.

The events of a trace are repeated until the text has the wanted size. Each reader runs in a
process of its own, the two in turn, and the best of the repeats counts. Prints a line for
each reader and the ratios with their limits; exit status 1 where a limit is exceeded. The peak
is that of the process and of its largest child together.

    python benchmarks/kineto_read.py [TRACE] [--megabytes 1000] [--repeats 3] [--gzip]

TRACE is a `.pt.trace.json[.gz]`; without it a synthetic trace of steps is written. Note that
`json.load` needs about five times the size of the text in memory.
"""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIME_RATIO_LIMIT = 1.0
PEAK_LIMIT_MB = 500

_OPEN = "file = gzip.open(path) if path.endswith('.gz') else open(path, 'rb')"
READERS = {
    "json.load": f"import gzip, json; {_OPEN}; kept = json.load(file)['traceEvents']",
    "kineto.read_trace": "from vanidl.readers import kineto; kept = kineto.read_trace(path).kind",
}
_MEASURED = """
import resource, sys, time
path = sys.argv[1]
began = time.perf_counter()
{reader}
seconds = time.perf_counter() - began
whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
peak = sum(resource.getrusage(who).ru_maxrss for who in whose) / 1024
print(seconds, peak, len(kept))
"""


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
    sys.path.insert(0, str(ROOT))
    from tests.makers.pytorch_traces import pretty, steps, trace

    return pretty(trace(steps(2000))).encode()


def measure(reader: str, path: Path) -> tuple[float, float, int]:
    """Seconds, peak of memory in MB and number of events or spans of one reading."""
    code = _MEASURED.format(reader=READERS[reader])
    command = [sys.executable, "-c", code, str(path)]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    seconds, peak, count = output.split()
    return float(seconds), float(peak), int(count)


def compare(path: Path, repeats: int) -> bool:
    """Print what was measured; whether both limits hold."""
    runs = [{reader: measure(reader, path) for reader in READERS} for _ in range(repeats)]
    best = {reader: min(run[reader][0] for run in runs) for reader in READERS}
    peak = {reader: max(run[reader][1] for run in runs) for reader in READERS}
    for reader in READERS:
        count = runs[0][reader][2]
        print(f"{reader:18} {best[reader]:8.2f} s {peak[reader]:8.0f} MB peak  {count:,} kept")
    ratio = best["kineto.read_trace"] / best["json.load"]
    own_peak = peak["kineto.read_trace"]
    print(f"time ratio {ratio:.2f} (limit {TIME_RATIO_LIMIT})")
    print(f"peak {own_peak:.0f} MB (limit {PEAK_LIMIT_MB} MB)")
    return ratio <= TIME_RATIO_LIMIT and own_peak <= PEAK_LIMIT_MB


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
