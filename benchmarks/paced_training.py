"""A training job whose steps take a given time on a device that is only waited for.

    python benchmarks/paced_training.py DATA LOADER COMPUTE_S [OPTION=VALUE ...]

So that what differs between two runs is their input: no core computes for the model. Options are
`workers`, `batch`, `epochs`, and the loader's own. Profiler trace as VANIDL_RUN says.
"""

from __future__ import annotations

import ast
import sys
import time
from pathlib import Path

import torch

from loaders.loading import Settings, open_loader
from loaders.recording import Places, recorder
from loaders.samples import open_samples

OWN = ("workers", "batch", "epochs")


def main() -> None:
    """Goes through all epochs."""
    torch.set_num_threads(1)
    data, name, compute_s, *rest = sys.argv[1:]
    options = {k: ast.literal_eval(v) for k, v in (pair.split("=", 1) for pair in rest)}
    settings = Settings(**{k: options.pop(k) for k in OWN if k in options})
    samples = open_samples(Path(data))
    loader = open_loader(name, samples, settings, options)
    steps = settings.epochs * len(loader)
    try:
        with recorder(Places.from_environment(), settings.world, steps=steps) as record:
            for epoch in range(settings.epochs):
                loader.set_epoch(epoch)
                for step, _ in enumerate(loader):
                    time.sleep(float(compute_s))
                    record.step(step, 0.0)
    finally:
        loader.close()


if __name__ == "__main__":
    main()
