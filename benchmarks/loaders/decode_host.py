"""Processor time that the host spends per encoded sample before a device decodes it.

    python -m benchmarks.loaders.decode_host [--batch 16] [--repeat 7]

Synthetic CosmoFlow and DeepCAM samples with the papers' statistics, encoded, in the page cache.
Ways from the files to a buffer that one copy takes to the device, processor time (user + system)
of one thread, medians of interleaved repeats:
  copies     a bytes object per container, its CRC-32 on the host, sections put together in a new
             buffer per batch: what the loader did before 2026-11-22
  ring       read straight into a buffer that is used again; the device computes the CRC-32
  ring, CRC  the same, and the CRC-32 on the host
  read       `pread` into a buffer that is used again, and nothing else: the limit
No device is needed, and none is used: what runs there is not in these figures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measure import interleaved, medians
from vanidl_loaders.decoders import open_sample
from vanidl_loaders.decoders.dataset import read_batch
from vanidl_loaders.decoders.folders import encode_folder, sample_path
from vanidl_loaders.decoders.kernels import find_kernel
from vanidl_loaders.decoders.staging import HostBuffer, read_containers, stage_rows
from vanidl_loaders.workloads.making import make
from vanidl_loaders.workloads.registry import find_workload

LEAST_TIMES_COPIES = 2.0


def main() -> None:
    """Print a table per workload."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add = parser.add_argument
    add("--batch", type=int, default=16)
    add("--repeat", type=int, default=7)
    add("--size", type=int, help="of the samples (default: the paper's)")
    options = parser.parse_args()
    for workload in ("cosmoflow", "deepcam"):
        with tempfile.TemporaryDirectory() as folder:
            measure(workload, Path(folder), options)


def measure(workload: str, folder: Path, options: argparse.Namespace) -> None:
    """Encode a batch of samples and print what each way takes."""
    size = options.size or find_workload(workload).SIZE
    make(workload, folder / "made", samples=options.batch, size=size, seed=0)
    encode_folder(folder / "made", folder / "encoded")
    paths = [sample_path(folder / "encoded", sample) for sample in range(options.batch)]
    nbytes = sum(path.stat().st_size for path in paths) / len(paths)
    kept = {name: HostBuffer() for name in ("ring", "ring, CRC", "read")}
    ways: dict[str, Callable[[], object]] = {
        "copies": partial(with_copies, paths),
        "ring": lambda: read_batch(paths, cleared(kept["ring"])),
        "ring, CRC": lambda: read_containers(paths, cleared(kept["ring, CRC"]), open_sample),
        "read": lambda: read_containers(paths, cleared(kept["read"]), len),
    }
    runs = {name: partial(processor_s, way) for name, way in ways.items()}
    interleaved(runs, 1)  # the first round fills the page cache and the buffers
    print(f"{workload}, {nbytes / 1e6:.2f} MB per container, batches of {options.batch}")
    found = medians(interleaved(runs, options.repeat))
    for name, seconds in found.items():
        each = seconds / options.batch
        print(f"  {name:<10} {each * 1e3:6.2f} ms per sample  {1 / each:6.0f} per s and core")
    ratio = found["copies"] / found["ring"]
    print(f"  copies / ring: {ratio:.1f}, required >= {LEAST_TIMES_COPIES:.0f}")


def with_copies(paths: list[Path]) -> None:
    """What the loader did before: each byte is written three times on the host."""
    samples = [open_sample(path.read_bytes()) for path in paths]
    for name, first in samples[0].items():
        kernel = find_kernel(first.codec)
        stage_rows(HostBuffer(), [kernel.columns(each[name]) for each in samples])


def cleared(buffer: HostBuffer) -> HostBuffer:
    """The buffer, empty."""
    buffer.clear()
    return buffer


def processor_s(way: Callable[[], object]) -> float:
    """Seconds of this thread's processor time."""
    before = time.thread_time()
    way()
    return time.thread_time() - before


if __name__ == "__main__":
    main()
