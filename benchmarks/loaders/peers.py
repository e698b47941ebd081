"""Loaders of others and ours at equal memory: seconds, and what the storage served.

    python -m benchmarks.loaders.peers [--where emulated disk] [--samples 512] [--only NAME]
        [--most-s 600]

Run by a Python that has the peers: pip install '.[loaders,storage,peers]' litdata spdl grain
nvidia-dali-cuda120; a row whose package is missing says so. Two ranks on one node, started here,
in step after every batch as in synchronous training, without a model. All may keep C = 0.85 N
samples, all ranks together: in memory, or in a cache of files where that is what a loader has.
Batches under way are not counted. Peers that read single samples read them here by `pread` from the
same HDF5 file in DistributedSampler's order; the others read a format and have an order of their
own.

`s` is an epoch after the first (median), `read` the samples' worth of bytes that the storage
served in it, counted by the emulated storage's own log, `first` the same of the first epoch, `kept`
the samples' worth that lay in caches and buffers at the end: above C, a limit was not kept.
About 6 minutes on 2 busy cores for the emulated storage; no row begins that could take it past
`--most-s`. On the disk nobody counts the reads.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loaders.scheduled import COST, started, write
from benchmarks.programs.peer_ranks import BATCH, EPOCHS, FIELDS, FRACTION, RANKS, Rows, places
from vanidl_loaders.data.samples import SampleSet, open_samples
from vanidl_loaders.emulated_fs.mount import EmulatedStorage, Request

LIMIT_S = 90
ROWS: dict[str, tuple[str, str | None, dict[str, Any]]] = {
    "PyTorch DataLoader, 4 workers": ("dataloader", None, {"workers": 4}),
    "SPDL, 8 threads": ("spdl", "spdl", {}),
    "torchdata nodes, 8 threads": ("nodes", "torchdata", {}),
    "Grain, 8 threads": ("grain", "grain", {}),
    "DALI, CPU, .npy files": ("dali", "nvidia.dali", {"format": "npy"}),
    "WebDataset, 1 MiB shards": ("webdataset", "webdataset", {"format": "tar"}),
    "LitData, 1 MiB chunks": ("litdata", "litdata", {"format": "litdata"}),
    "Streaming, 1 MiB shards": ("streaming", "streaming", {"format": "mds1"}),
    "Streaming, 4 MiB shards": ("streaming", "streaming", {"format": "mds4"}),
    "C samples in shared memory": ("simple", None, {}),
    "scheduled, a buffer per rank": ("ours", None, {"node_buffer": "no"}),
    "scheduled": ("ours", None, {}),
}
"""Row -> (kind, package, options)."""


@dataclass(frozen=True)
class Result:
    """A row: seconds and samples' worth of bytes of each epoch (None: not counted), and kept."""

    seconds: list[float]
    read: list[float] | None
    kept: int


def main() -> None:
    """Measures and prints a table for each storage."""
    options = _options()
    end_s = time.monotonic() + options.most_s
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        source = Path(scratch) / "source"
        write(source, options.samples)
        rows = {name: row for name, row in ROWS.items() if options.only in name}
        reasons = {name: _unready(source, *row[1:]) for name, row in rows.items()}
        for where in options.where:
            found = measure(where, source, Path(scratch), reasons, end_s)
            show(where, found, open_samples(source))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--where", nargs="+", default=["emulated"], choices=["emulated", "disk"])
    parser.add_argument("--samples", type=int, default=512, help="of 196,608 bytes")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    parser.add_argument("--most-s", type=float, default=600, help="seconds of all rows together")
    parser.add_argument("--scratch", type=Path, help="folder on the disk to measure")
    return parser.parse_args()


# -- formats --------------------------------------------------------------------------------


def _write_npy(source: Path, target: Path) -> None:
    target.mkdir()
    rows, samples = Rows(open_samples(source).path(0)), len(open_samples(source))
    for i in range(samples):
        np.save(target / f"{i:06d}.npy", np.stack([*rows[i].values()]))


def _write_tar(source: Path, target: Path) -> None:
    from webdataset import ShardWriter

    target.mkdir()
    rows, samples = Rows(open_samples(source).path(0)), len(open_samples(source))
    with ShardWriter(str(target / "%06d.tar"), maxsize=1 << 20, verbose=0) as writer:
        for i in range(samples):
            arrays = {f"{name}.npy": array for name, array in rows[i].items()}
            writer.write({"__key__": f"{i:09d}", **arrays})


def _write_mds(source: Path, target: Path, nbytes: int) -> None:
    from streaming import MDSWriter

    rows, samples = Rows(open_samples(source).path(0)), len(open_samples(source))
    kinds = dict.fromkeys(FIELDS, "ndarray:float32:128,128")
    with MDSWriter(out=str(target), columns=kinds, size_limit=nbytes) as writer:
        for i in range(samples):
            writer.write(rows[i])


def _write_litdata(source: Path, target: Path) -> None:
    from litdata.streaming.writer import BinaryWriter

    target.mkdir()
    rows, samples = Rows(open_samples(source).path(0)), len(open_samples(source))
    writer = BinaryWriter(str(target), chunk_bytes=1 << 20)
    for i in range(samples):
        writer.add_item(i, rows[i])
    writer.done()
    writer.merge(1)


FORMATS: dict[str, Callable[[Path, Path], None]] = {
    "npy": _write_npy,
    "tar": _write_tar,
    "mds1": partial(_write_mds, nbytes=1 << 20),
    "mds4": partial(_write_mds, nbytes=1 << 22),
    "litdata": _write_litdata,
}
"""Folder beside the samples -> who writes it."""

_PROGRAM = """
import sys
from pathlib import Path
from benchmarks.loaders.peers import FORMATS
source, name = Path(sys.argv[1]), sys.argv[2]
FORMATS[name](source, source / name)
"""


def _unready(source: Path, package: str | None, options: dict[str, Any]) -> str | None:
    """Why a row cannot be measured; otherwise its format is there afterwards, and None comes back.

    Written in a process of its own, as some peers keep threads and locks.
    """
    if not _installed(package):
        return f"{package} is not installed"
    name = options.get("format")
    if name is None or (source / name).exists():
        return None
    line = [sys.executable, "-W", "ignore", "-c", _PROGRAM, source, name]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    return f"cannot write: {done.stderr.splitlines()[-1]}" if done.returncode else None


def _installed(package: str | None) -> bool:
    try:
        return package is None or importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:
        return False


# -- rows -----------------------------------------------------------------------------------


def measure(
    where: str, source: Path, scratch: Path, reasons: dict[str, str | None], end_s: float
) -> dict[str, Result | str]:
    """Every row; where it could not be measured, why."""
    found: dict[str, Result | str] = {}
    for name, reason in reasons.items():
        print(f"{where}: {name}", file=sys.stderr, flush=True)
        kind, _, options = ROWS[name]
        if time.monotonic() > end_s - LIMIT_S:
            reason = "not begun: no time left"
        found[name] = reason or _row(where, source, scratch, [kind, options])
        print(f"    {found[name]}", file=sys.stderr, flush=True)
    return found


def _row(where: str, source: Path, scratch: Path, config: list[Any]) -> Result | str:
    with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as cache:
        if where == "disk":
            return _result([*config, str(source), cache], None, open_samples(source))
        log = scratch / "requests.jsonl"
        log.unlink(missing_ok=True)
        with EmulatedStorage(source, scratch / "mount", cost=COST, log=log) as storage:
            return _result([*config, str(storage.target), cache], storage, open_samples(source))


def _result(config: list[Any], storage: EmulatedStorage | None, samples: SampleSet) -> Result | str:
    try:
        ranks = started("benchmarks.programs.peer_ranks", sys.executable, config, LIMIT_S)
    except (SystemExit, subprocess.TimeoutExpired) as error:
        return f"failed: {error}"
    used = [sum(each) for each in zip(*(rank["used"] for rank in ranks), strict=True)]
    whole = len(samples) // (RANKS * BATCH) * RANKS * BATCH
    if used != [whole] * EPOCHS:
        return f"expected {whole} samples per epoch, found {used}"
    epochs = zip(*(rank["spans"] for rank in ranks), strict=True)
    spans = [(min(begin for begin, _ in s), max(end for _, end in s)) for s in epochs]
    read = None
    if storage is not None:
        begins, served = [0, *(begin for begin, _ in spans[1:]), sys.maxsize], storage.requests()
        read = [_served(served, *each) / samples.sample_nbytes for each in pairwise(begins)]
    seconds = [(end - begin) / 1e9 for begin, end in spans]
    return Result(seconds, read, ranks[0]["kept"])


def _served(requests: list[Request], begin: int, end: int) -> int:
    """Bytes of the requests that arrived from the begin of an epoch to that of the next."""
    return sum(each.size for each in requests if begin <= each.start_ns < end)


def show(where: str, found: dict[str, Result | str], samples: SampleSet) -> None:
    """Prints a table."""
    held, count = places(len(samples)), len(samples)
    bound = (count - held) * samples.sample_nbytes / COST.total_bytes_per_s
    print(
        f"\n{where}: {count} samples of {samples.sample_nbytes:,} bytes, {RANKS} ranks, "
        f"C = {held} ({FRACTION} N), {EPOCHS} epochs; N - C = {count - held}"
        + (f", {bound:.2f} s at this bandwidth" if where == "emulated" else "")
    )
    print("| loader | s | read | first s | first read | kept |\n|---|---|---|---|---|---|")
    for name, result in found.items():
        if isinstance(result, str):
            print(f"| {name} | {result} | | | | |")
            continue
        first, *later = result.seconds
        reads = ["-", "-"]
        if result.read:
            reads = [
                f"{value:.0f}" for value in (statistics.median(result.read[1:]), result.read[0])
            ]
        print(
            f"| {name} | {statistics.median(later):.2f} | {reads[0]} | {first:.2f} | {reads[1]} | "
            f"{result.kept} |"
        )


if __name__ == "__main__":
    main()
