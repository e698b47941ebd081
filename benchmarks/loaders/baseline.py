"""Whether the baseline is the DataLoader that a good engineer writes: processor time against one.

    python -m benchmarks.loaders.baseline [--samples 512] [--repeat 5]

Synthetic ptychography samples of 196,608 bytes in the page cache, one rank, batches of 16. A
data set of h5py that opens its file once per process, in PyTorch's DataLoader with persistent
workers, against `--loader baseline`: user and system time of the process and its workers over
three epochs, their start and end included, medians of interleaved repeats, each in a new process.
Required: at most 1.1 times.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.measure import in_child, interleaved, medians
from vanidl_loaders.workloads.making import make

MOST_TIMES_PLAIN = 1.1
EPOCHS, BATCH = 3, 16

PLAIN = f"""
import sys
import h5py
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
path, count, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

class Plain(Dataset):
    arrays = None

    def __len__(self):
        return count

    def __getitem__(self, sample):
        if self.arrays is None:
            file = h5py.File(path, "r")
            self.arrays = {{name: file[name] for name in file}}
        return {{name: array[sample] for name, array in self.arrays.items()}} | {{"sample": sample}}

def run():
    dataset = Plain()
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0)
    loader = DataLoader(dataset, {BATCH}, sampler=sampler, num_workers=workers,
                        persistent_workers=workers > 0)
    seen = 0
    for epoch in range({EPOCHS}):
        sampler.set_epoch(epoch)
        seen += sum(len(batch["sample"]) for batch in loader)
    del loader
    return seen
"""

OURS = f"""
import sys
import torch
from vanidl_loaders.data.samples import open_samples
from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader

torch.set_num_threads(1)
samples, workers = open_samples(sys.argv[1]), int(sys.argv[3])

def run():
    loader = open_loader("baseline", samples, Settings(batch={BATCH}, workers=workers))
    seen = 0
    for epoch in range({EPOCHS}):
        loader.set_epoch(epoch)
        seen += sum(len(batch["sample"]) for batch in loader)
    loader.close()
    return seen
"""


def main() -> int:
    """Exit status 0 where the baseline is fair."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    fair = True
    with tempfile.TemporaryDirectory() as folder:
        samples = make("ptycho", Path(folder), samples=options.samples, seed=0, size=128)
        for workers in (0, 2):
            places = {"plain": (PLAIN, samples.path(0)), "baseline": (OURS, samples.folder)}
            runs = {
                name: partial(processor_s, code, place, options.samples, workers)
                for name, (code, place) in places.items()
            }
            found = medians(interleaved(runs, options.repeat))
            ratio = found["baseline"] / found["plain"]
            fair &= ratio <= MOST_TIMES_PLAIN
            each = {name: s / EPOCHS / options.samples * 1e6 for name, s in found.items()}
            print(
                f"{workers} workers: plain {each['plain']:.0f} us per sample, baseline "
                f"{each['baseline']:.0f}, {ratio:.2f} times, required <= {MOST_TIMES_PLAIN}"
            )
    return 0 if fair else 1


def processor_s(code: str, place: Path, samples: int, workers: int) -> float:
    """Processor seconds of one way."""
    done = in_child(code, place, samples, workers)
    assert done.value == EPOCHS * samples
    return done.processor_s


if __name__ == "__main__":
    sys.exit(main())
