"""How fast samples are encoded and decoded on the CPU, and how small they get.

    python -m benchmarks.loaders.decode_cpu [--repeat 9]

Synthetic samples with the papers' statistics (vanidl_loaders.workloads), one in each of as many
threads as there are cores, so that every way has all cores; MB are of the source array. Ways to a
CosmoFlow sample as float16 log(1 + x), channels first, all checked to give the same bits:
  ours         container in memory, CRC-32 checked, decoded
  gzip         gunzip (zlib) of the int16, as in the TFRecords, log1p, float16, transpose
  isal         the same with the fastest gunzip there is
  no gzip      log1p, float16, transpose of the int16
To a DeepCAM sample as float16: ours, and float32 through gzip, or as it is.

Required: gzip >= 10 x ours in time for CosmoFlow. Limit of the size: int16 / (keys + table).
"""

from __future__ import annotations

import argparse
import gzip
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from isal import igzip
from numpy.typing import NDArray

from benchmarks.measure import interleaved, medians, wall_s
from vanidl_loaders.decoders import CosmoFlow, DeepCam, decode_batch, encode, open_sample
from vanidl_loaders.decoders.coding import ARRAY, sample_errors
from vanidl_loaders.decoders.staging import count_cores
from vanidl_loaders.workloads.registry import find_workload

Array = NDArray[Any]
Run = Callable[[], Any]
OURS, PEER = "ours", "gzip"
LEAST_TIMES_PEER = 10.0


def main() -> None:
    """Print three tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--repeat", type=int, default=9)
    repeat = parser.parse_args().repeat
    print(f"synthetic samples, {count_cores()} cores, medians of {repeat} interleaved repeats")
    counts = np.ascontiguousarray(np.moveaxis(made("cosmoflow", "counts"), 0, -1))
    fields = np.ascontiguousarray(np.moveaxis(made("deepcam", "climate/data"), 0, -1))
    encoding(counts, fields, repeat)
    cosmoflow(counts, repeat)
    deepcam(fields, repeat)


def made(workload: str, name: str) -> Array:
    """One array of the first sample of a workload at the paper's size."""
    module = find_workload(workload)
    samples = module.describe(Path(), samples=1, seed=0, size=module.SIZE)
    return module.sample(samples, 0)[name]


def encoding(counts: Array, fields: Array, repeat: int) -> None:
    """Print the speed of the encoders."""
    runs = {
        "CosmoFlow": lambda: encode(counts, CosmoFlow()),
        "DeepCAM, closed": lambda: encode(fields, DeepCam()),
        "DeepCAM, open": lambda: encode(fields, DeepCam(mode="open")),
        "gzip of the int16": lambda: gzip.compress(counts.tobytes(), 6),
    }
    sizes = dict.fromkeys(runs, fields.nbytes) | dict.fromkeys(
        ("CosmoFlow", "gzip of the int16"), counts.nbytes
    )
    print("encoding, MB/s of source on all cores")
    for name, seconds in seconds_per_sample(runs, min(repeat, 5)).items():
        print(f"  {name:<20} {sizes[name] / seconds / 1e6:9.0f}")


def cosmoflow(counts: Array, repeat: int) -> None:
    """Print sizes and times of a CosmoFlow sample."""
    content, zipped = encode(counts, CosmoFlow()), gzip.compress(counts.tobytes(), 6)

    def logs(raw: bytes) -> Array:
        wide = np.frombuffer(raw, np.int16).reshape(counts.shape).astype(np.float32)
        return np.ascontiguousarray(np.moveaxis(np.log1p(wide).astype(np.float16), -1, 0))

    raw = counts.tobytes()
    runs: dict[str, Run] = {
        OURS: lambda: ours(content),
        PEER: lambda: logs(gzip.decompress(zipped)),
        "isal": lambda: logs(igzip.decompress(zipped)),
        "no gzip": lambda: logs(raw),
    }
    same = {name: run().view(np.uint16) for name, run in runs.items()}
    assert all(np.array_equal(found, same[OURS]) for found in same.values())
    groups = len(np.unique(counts.view(np.int64)))
    limit = counts.nbytes / (2 * counts.size / 4 + 8 * groups)
    print(
        f"CosmoFlow {counts.shape}: {len(np.unique(counts))} values, {groups} groups; "
        f"int16 / ours {counts.nbytes / len(content):.3f} (limit with these groups {limit:.3f}, "
        f"the paper's sample 3.74), float32 / ours {2 * counts.nbytes / len(content):.2f}, "
        f"gzip / ours {len(zipped) / len(content):.2f} (paper: 0.75)"
    )
    found = times(runs, counts.nbytes, repeat)
    ratio = found[PEER] / found[OURS]
    print(f"  gzip + log1p / ours: {ratio:.1f}, required >= {LEAST_TIMES_PEER:.0f}")


def deepcam(fields: Array, repeat: int) -> None:
    """Print sizes, errors and times of a DeepCAM sample."""
    contents = {mode: encode(fields, DeepCam(mode=mode)) for mode in ("closed", "open")}
    for mode, content in contents.items():
        channels = sample_errors(content, {ARRAY: fields})[ARRAY]
        over = [each.over_tenth for each in channels]
        lines = open_sample(content)[ARRAY].sections
        modes = [len(lines[f"{kind}_lines"]) for kind in ("const", "delta", "raw")]
        print(
            f"DeepCAM {fields.shape}, {mode}: float32 / ours {fields.nbytes / len(content):.2f}; "
            f"lines CONST {modes[0]}, DELTA {modes[1]}, RAW {modes[2]}; over 10 % off: "
            f"{np.mean(over):.3%}, worst channel {max(over):.3%} (paper 3 %); largest error / "
            f"range {max(each.largest_of_range for each in channels):.4f}"
        )
    zipped = gzip.compress(fields.tobytes(), 1)

    def halves(raw: bytes) -> Array:
        wide = np.frombuffer(raw, np.float32).reshape(fields.shape)
        return np.ascontiguousarray(np.moveaxis(wide.astype(np.float16), -1, 0))

    raw = fields.tobytes()
    runs: dict[str, Run] = {
        OURS: lambda: ours(contents["closed"]),
        PEER: lambda: halves(gzip.decompress(zipped)),
        "no gzip": lambda: halves(raw),
    }
    found = times(runs, fields.nbytes, min(repeat, 5))
    print(f"  gzip + float16 / ours: {found[PEER] / found[OURS]:.1f}")


def ours(content: bytes) -> Array:
    """A container, checked and decoded by one thread: each core has its own sample."""
    return decode_batch([open_sample(content)], device="cpu", threads=1)[ARRAY][0].numpy()


def times(runs: dict[str, Run], nbytes: int, repeat: int) -> dict[str, float]:
    """Median seconds per sample of each run, printed."""
    found = seconds_per_sample(runs, repeat)
    for name, seconds in found.items():
        print(f"  {name:<10} {seconds * 1e3:8.2f} ms a sample {nbytes / seconds / 1e6:9.0f} MB/s")
    return found


def seconds_per_sample(runs: dict[str, Run], repeat: int) -> dict[str, float]:
    """Median seconds of each run, one run per core at a time."""
    with ThreadPoolExecutor(count_cores()) as pool:
        on_all = {name: partial(on_all_cores, run, pool) for name, run in runs.items()}
        interleaved(on_all, 1)  # the first round warms up
        return medians(interleaved(on_all, repeat))


def on_all_cores(run: Run, pool: ThreadPoolExecutor) -> float:
    """Wall seconds of one run per core, over cores."""

    def together() -> None:
        for future in [pool.submit(run) for _ in range(count_cores())]:
            future.result()

    return wall_s(together) / count_cores()


if __name__ == "__main__":
    main()
