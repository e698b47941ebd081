"""Five applications in miniature: how they lay data out, and read it while they train.

    python -m vanidl_loaders.workloads.applications imagenet --data DIR --make
    vanidl record -o RUN -- python -m vanidl_loaders.workloads.applications imagenet --data DIR

Those of the poster on the I/O of scientific deep learning at Argonne's facility (file format, sizes
and order of requests, when they come, what is beside compute), with arrays of noise and products of
matrices for models:

    imagenet      TFRecord, samples of about 256 KB in files of many; tf.data reads 256 KB a request
                  in the order of the file, ahead, from several files at once
    cosmictagger  HDF5 in chunks of 2 and 6 KB, in order, before each step
    ffn           HDF5 in chunks of 62 KB, at random, beside about 100 bytes of metadata, before
                  each step
    cosmoflow     TFRecord, a sample of 2 MB a file, batches of one; 256 KB a request, ahead
    frnn          NPZ, 2 MB of signals a file in random order, beside some 100 bytes of a file of
                  metadata, before and between steps

Not matched: 128 nodes, Lustre, the models and so how long a step computes: that is `--compute-ms`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..decoders.convert import write_records

if TYPE_CHECKING:
    import torch

REQUEST_NBYTES = 256 << 10
"""TensorFlow's buffer of a TFRecord file."""
INTERLEAVED = 4
"""Files that a worker reads in turns."""
AHEAD = 2
"""Workers that read and parse ahead, where tf.data does."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Application:
    """One of the five.

    Attributes:
        make: Writes the files of a data set into a folder.
        samples: The samples of an epoch, one by one; (which of how many) workers share them.
        batch: Samples of a step.
        ahead: Workers that read while steps compute; 0: the training process reads.
        compute_ms: Of a step, unless told otherwise.
    """

    make: Callable[[Path], None]
    samples: Callable[[Path, int, int, int], Iterator[Floats]]
    batch: int
    ahead: int
    compute_ms: float


def _make_imagenet(folder: Path, files: int = 12, samples: int = 64) -> None:
    random = np.random.default_rng(0)
    for number in range(files):
        records = (random.bytes(int(random.normal(250e3, 20e3))) for _ in range(samples))
        write_records(folder / f"train-{number:05d}-of-{files:05d}.tfrecord", records)


def _read_imagenet(folder: Path, epoch: int, worker: int, workers: int) -> Iterator[Floats]:
    """A sample of each of several files in turn, as tf.data's parallel interleave has it."""
    paths = sorted(folder.glob("*.tfrecord"))[worker::workers]
    left = np.random.default_rng(epoch).permutation(len(paths)).tolist()
    opened = [_read_records(paths[i]) for i in left[:INTERLEAVED]]
    del left[:INTERLEAVED]
    # Round robin: a record of each open file in turn; a file that ends makes room for another.
    while opened:
        records = opened.pop(0)
        record = next(records, None)
        if record is not None:
            # Something that takes as long as decoding, for a vector of one length.
            values = np.frombuffer(record[:200_000], np.uint8).astype(np.float32)
            yield np.tanh(values / 255)
            opened.append(records)
        elif left:
            opened.append(_read_records(paths[left.pop(0)]))


def _make_cosmoflow(folder: Path, files: int = 96) -> None:
    random = np.random.default_rng(0)
    for number in range(files):
        counts = random.poisson(0.3, (64, 64, 64, 4)).astype("<i2")
        write_records(folder / f"univ_{number:05d}.tfrecord", [counts.tobytes()])


def _read_cosmoflow(folder: Path, epoch: int, worker: int, workers: int) -> Iterator[Floats]:
    paths = sorted(folder.glob("*.tfrecord"))
    for i in np.random.default_rng(epoch).permutation(len(paths))[worker::workers]:
        for record in _read_records(paths[i]):
            yield np.log1p(np.frombuffer(record, "<i2").astype(np.float32))


def _make_cosmictagger(folder: Path, samples: int = 960) -> None:
    """Sparse images of 44 KB as larcv keeps them: pixels in 6 KB chunks, their places in 2 KB."""
    import h5py

    random = np.random.default_rng(0)
    with h5py.File(folder / "cosmic_tagging_train.h5", "w") as file:
        voxels = random.normal(size=samples * 4608).astype("<f8")  # 36 KB a sample
        file.create_dataset("Data/sparse2d/voxels", data=voxels, chunks=(768,))
        places = random.integers(0, 1 << 40, samples * 1024)  # 8 KB a sample
        file.create_dataset("Data/sparse2d/extents", data=places, chunks=(256,))


def _read_cosmictagger(folder: Path, _epoch: int, worker: int, workers: int) -> Iterator[Floats]:
    import h5py

    with h5py.File(folder / "cosmic_tagging_train.h5") as file:
        voxels, extents = (file[f"Data/sparse2d/{name}"] for name in ("voxels", "extents"))
        for i in range(worker, len(voxels) // 4608, workers):
            places = extents[i * 1024 : (i + 1) * 1024]
            image = voxels[i * 4608 : (i + 1) * 4608].astype(np.float32)
            yield image + np.float32(places[0] % 2)


def _make_ffn(folder: Path, blocks: int = 600) -> None:
    """An EM volume of which a field of view is one chunk of 62 KB, and a header of each."""
    import h5py

    random = np.random.default_rng(0)
    with h5py.File(folder / "grayscale.h5", "w") as file:
        volume = random.integers(0, 256, (blocks * 32, 31, 64), dtype=np.uint8)
        file.create_dataset("raw", data=volume, chunks=(32, 31, 64))
    for i in range(blocks):
        header = {
            "block": i,
            "fov": [32] * 3,
            "label": int(random.integers(1 << 30)),
            "seed": i * 7,
        }
        (folder / f"coordinates-{i:05d}.json").write_text(json.dumps(header).ljust(100))


def _read_ffn(folder: Path, epoch: int, worker: int, workers: int) -> Iterator[Floats]:
    """A third of the blocks, at random; what is known of each is looked up first."""
    import h5py

    with h5py.File(folder / "grayscale.h5") as file:
        raw = file["raw"]
        blocks = len(raw) // 32
        order = np.random.default_rng(epoch).permutation(blocks)[: blocks // 3]
        for i in order[worker::workers]:
            # A look-up in a small file before each read, as the application makes it.
            with (folder / f"coordinates-{i:05d}.json").open("rb", buffering=0) as known:
                block = json.loads(known.readall())["block"]
            yield raw[block * 32 : (block + 1) * 32].astype(np.float32)


def _make_frnn(folder: Path, shots: int = 160) -> None:
    random = np.random.default_rng(0)
    lines = []
    for i in range(shots):
        signals = random.normal(size=(1 << 19)).astype("<f4")  # 2 MB
        np.savez(folder / f"{i:06d}.npz", signals=signals)
        lines.append(
            f"{i:06d} {random.uniform(0, 2):.6f} disruptive={i % 4 == 0}".ljust(255) + "\n"
        )
    (folder / "shot_list.txt").write_text("".join(lines))


def _read_frnn(folder: Path, epoch: int, worker: int, workers: int) -> Iterator[Floats]:
    """The line of a shot, then its signals in one request; some are read before the first step."""
    shots = len(list(folder.glob("*.npz")))
    order = np.random.default_rng(epoch).permutation(shots)[worker::workers].tolist()
    with (folder / "shot_list.txt").open("rb", buffering=0) as listed:
        before = [_read_shot(folder, listed.fileno(), i) for i in order[: shots // 10]]
        yield from before
        for i in order[len(before) :]:
            yield _read_shot(folder, listed.fileno(), i)


def _read_shot(folder: Path, listed: int, shot: int) -> Floats:
    for _ in range(4):  # each signal's length and times are looked up on their own
        line = os.pread(listed, 256, shot * 256)
    path = folder / f"{int(line[:6]):06d}.npz"
    with path.open("rb", buffering=0) as file, zipfile.ZipFile(file) as held:
        return np.load(io.BytesIO(held.read("signals.npy")))


APPLICATIONS: dict[str, Application] = {
    "imagenet": Application(_make_imagenet, _read_imagenet, 8, AHEAD, 300.0),
    "cosmictagger": Application(_make_cosmictagger, _read_cosmictagger, 8, 0, 420.0),
    "ffn": Application(_make_ffn, _read_ffn, 1, 0, 20.0),
    "cosmoflow": Application(_make_cosmoflow, _read_cosmoflow, 1, AHEAD, 350.0),
    "frnn": Application(_make_frnn, _read_frnn, 2, 0, 140.0),
}
"""Name -> what it is."""


def _read_records(path: Path) -> Iterator[bytes]:
    """The records of a TFRecord file, read in requests of 256 KB as TensorFlow does."""
    held = bytearray()
    with path.open("rb", buffering=0) as file:
        while True:
            # Length (8 bytes), its CRC (4), the record, its CRC (4).
            nbytes = 16 + int.from_bytes(held[:8], "little") if len(held) >= 8 else 8
            if len(held) >= nbytes > 8:
                yield bytes(held[12 : nbytes - 4])
                del held[:nbytes]
                continue
            more = file.read(REQUEST_NBYTES)
            if not more:
                return
            held += more


def train(name: str, data: Path, *, epochs: int, steps: int, compute_ms: float | None) -> int:
    """Trains; the steps that were made. Batches come by PyTorch's DataLoader, as it is used."""
    import torch
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    application = APPLICATIONS[name]

    class Samples(IterableDataset[torch.Tensor]):
        """A stream of samples, each worker its part."""

        epoch = 0

        def __iter__(self) -> Iterator[torch.Tensor]:
            worker = get_worker_info()
            of = (worker.id, worker.num_workers) if worker else (0, 1)
            for sample in application.samples(data, self.epoch, *of):
                yield torch.from_numpy(np.array(sample, copy=True).reshape(-1)[:1024])

    torch.set_num_threads(1)
    # The step takes as long as the application's own, by products of matrices of no use.
    step_s = (application.compute_ms if compute_ms is None else compute_ms) / 1e3
    samples, model, made = Samples(), _make_model(step_s), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for samples.epoch in range(epochs):
        # A loader for each epoch, so that its workers see the number of it.
        loader = DataLoader(
            samples, application.batch, num_workers=application.ahead, drop_last=True
        )
        for batch in loader:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            made += 1
            if made == steps:
                return made
    return made


def _make_model(step_s: float) -> Any:  # noqa: ANN401
    """A linear layer whose step takes so many seconds: a third of them forward, the rest back."""
    from torch import nn

    class Model(nn.Module):
        """Products of matrices beside a layer that learns."""

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1024, 64)

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            """The layer's values."""
            values: torch.Tensor = self.layer(batch)
            _multiply(step_s / 3)
            values.register_hook(lambda _: _multiply(step_s * 2 / 3))
            return values

    return Model()


def _multiply(seconds: float) -> None:
    """Products of matrices until so much time has passed."""
    import torch

    ends = time.perf_counter() + seconds
    weights = torch.ones(192, 192)
    while time.perf_counter() < ends:
        weights = (weights @ weights).clamp(0, 1)


def main(arguments: list[str] | None = None) -> int:
    """Makes the files or trains on them; exit status 0."""
    parser = argparse.ArgumentParser(prog="python -m vanidl_loaders.workloads.applications")
    add = parser.add_argument
    add("application", choices=APPLICATIONS)
    add("--data", required=True, type=Path, metavar="DIR", help="a folder of its own")
    add("--make", action="store_true", help="write the files, and no more")
    add("--epochs", type=int, default=1)
    add("--steps", type=int, default=100, help="at most")
    add("--compute-ms", type=float, help="of a step (default: as suits the application)")
    chosen = parser.parse_args(arguments)
    if chosen.make:
        chosen.data.mkdir(parents=True, exist_ok=True)
        APPLICATIONS[chosen.application].make(chosen.data)
        return 0
    steps_made = train(
        chosen.application, chosen.data, epochs=chosen.epochs, steps=chosen.steps,
        compute_ms=chosen.compute_ms,
    )  # fmt: skip
    sys.stdout.write(json.dumps({"application": chosen.application, "steps": steps_made}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
