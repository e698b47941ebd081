"""The loader `decoded`: reads containers and decodes them on the CPU or a GPU.

Samples come in the DistributedSampler's order, as from the baseline. With workers, that many
threads read ahead, straight into a ring of host buffers; on the CPU they decode, too. For a GPU
the buffers are page-locked, and the threads begin the copy on a stream of its own; the training
process launches the kernels behind it and waits for nothing.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from ..data.order import draw_epoch_order, pad_order, rank_order
from ..data.samples import SampleSet
from ..errors import InputError, MissingError
from ..loader.batches import pin_batch
from ..loader.epochs import EpochLoader
from ..loader.loader import Batch, Counts, Loader, Settings
from ..loader.registry import declare_decoded
from .coding import decode_batch, open_sample, require_alike, require_known
from .container import Opened, Spec, unpack_unchecked
from .folders import ENCODED, sample_path
from .kernels import Kernel, find_checksum, find_kernel
from .staging import (
    Copy,
    CudaTransfer,
    HostBuffer,
    Ring,
    Staged,
    Transfer,
    read_containers,
    stage_rows,
)

NAME = "decoded"
HELP = "encoded samples (python -m vanidl_loaders encode), decoded on the CPU or a GPU"
add_arguments = declare_decoded
DEVICES = ("auto", "cpu", "cuda")
NAMED_MOST = 10
"""Samples that an error names."""

T = TypeVar("T")


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader of encoded samples."""
    return open_containers(samples, settings, options)


def open_containers(
    samples: SampleSet,
    settings: Settings,
    options: argparse.Namespace,
    locate: Callable[[Path, int], Path] = sample_path,
) -> DecodedLoader:
    """The loader that the options describe.

    Args:
        samples: What was encoded.
        settings: As every loader has them.
        options: What `add_arguments` declares.
        locate: (folder of the containers, sample) -> where that sample's lies.
    """
    folder = Path(options.encoded) if options.encoded else samples.folder / ENCODED
    transfer = None
    if options.decode_on != "cpu" and torch.cuda.is_available():
        transfer = CudaTransfer(torch.device("cuda", settings.world.local_rank))
    elif options.decode_on == "cuda":
        raise MissingError("expected a CUDA device, found none: --decode-on auto or cpu")
    return DecodedLoader(samples, settings, folder, transfer=transfer, locate=locate)


class EncodedDataset(Dataset[Batch]):
    """Encoded samples by id, each a dict of CPU tensors: for PyTorch's own DataLoader."""

    def __init__(self, samples: SampleSet, folder: str | Path) -> None:
        self._samples, self._folder = samples, Path(folder)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._samples)

    def __getitem__(self, sample: int) -> Batch:
        """The arrays of one sample, and `sample`, its id.

        Raises:
            IndexError: No such sample.
            InputError: Its container is missing or damaged.
        """
        if not 0 <= sample < len(self):
            raise IndexError(f"expected a sample in 0..{len(self) - 1}, found {sample}")
        buffer = HostBuffer()
        encoded, _ = read_containers([sample_path(self._folder, sample)], buffer, open_sample)
        batch = decode_batch(encoded, device="cpu", threads=1)
        decoded = {name: tensor[0] for name, tensor in batch.items()}
        return decoded | {"sample": torch.tensor(sample)}


class DecodedLoader(EpochLoader):
    """Batches of decoded samples in the DistributedSampler's order.

    Where a device decodes, a damaged body is found there: `verify` raises, which is called behind
    the last batch of an epoch and by `close`. On the CPU the batch itself raises.
    """

    def __init__(
        self,
        samples: SampleSet,
        settings: Settings,
        folder: str | Path,
        *,
        transfer: Transfer | None = None,
        locate: Callable[[Path, int], Path] = sample_path,
    ) -> None:
        """`transfer`: to the device that decodes; None: the CPU decodes."""
        self._samples, self._transfer = samples, transfer
        self._locate = partial(locate, Path(folder))
        if not self._locate(0).exists():
            raise InputError(
                f"expected containers in {folder}, found none: make them with "
                f"python -m vanidl_loaders encode {samples.folder} {folder}"
            )
        super().__init__(settings, Counts(), settings.steps(samples), settings.identity(samples))
        # Two buffers a worker: one is read into while the other is copied from.
        on_gpu = transfer is not None and transfer.device.type == "cuda"
        self._ring = Ring(max(2, 2 * settings.workers), pin_memory=on_gpu)
        self._verdict: Verdict | None = None

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch; behind the last, `verify`."""
        yield from super().__iter__()
        self.verify()

    def verify(self) -> None:
        """Waits for the device and looks at what it found in the batches handed out so far.

        Raises:
            InputError: A sample is damaged; named.
        """
        if self._verdict is not None:
            self._verdict.require_good()

    def close(self) -> None:
        """Ends an open iteration, and verifies it."""
        super().close()
        self.verify()

    def _batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        # This rank's ids of the epoch, batch by batch.
        settings = self._settings
        order = draw_epoch_order(
            len(self._samples), seed=settings.seed, epoch=epoch, shuffle=settings.shuffle
        )
        padded = pad_order(
            order, ranks=settings.world.ranks, batch=settings.batch, drop_last=settings.drop_last
        )
        ids = rank_order(padded, settings.world).tolist()
        size, workers = settings.batch, settings.workers
        # From the batch at which it begins on: what was done before a resume is not read.
        batches = [ids[at : at + size] for at in range(start * size, len(ids), size)]
        if self._transfer is None:
            return self._from_host(
                batches, _read_ahead([partial(self._host, b) for b in batches], workers)
            )
        self.verify()  # of an iteration that was left
        calls = [partial(self._begin_copy, batch, self._transfer) for batch in batches]
        return self._from_device(batches, _read_ahead(calls, workers), self._transfer.device)

    def _host(self, ids: Sequence[int]) -> tuple[int, Batch]:
        """Runs in a thread: bytes read, and the decoded arrays."""
        buffer = self._ring.take()
        try:
            samples, nbytes = read_containers(self._list_paths(ids), buffer, open_sample)
            # With workers batches are decoded side by side; without them one by all cores.
            threads = 1 if self._settings.workers else None
            batch = decode_batch(samples, device="cpu", threads=threads)
        finally:
            self._ring.give_back(buffer)
        return nbytes, pin_batch(batch) if self._settings.pin_memory else batch

    def _from_host(
        self, batches: Sequence[Sequence[int]], decoded: Iterator[tuple[int, Batch]]
    ) -> Generator[Batch, None, None]:
        for ids, (nbytes, batch) in zip(batches, decoded, strict=True):
            yield self._counted(ids, nbytes) | batch

    def _begin_copy(self, ids: Sequence[int], transfer: Transfer) -> tuple[StagedBatch, Copy]:
        """Runs in a thread: reads a batch and begins its copy to the device."""
        buffer, copied = self._ring.take(), None
        try:
            staged = read_batch(self._list_paths(ids), buffer)
            copied = transfer.begin(buffer.used)
        finally:
            # The buffer is free again once its copy is done.
            self._ring.give_back(buffer, copied)
        return staged, copied

    def _from_device(
        self,
        batches: Sequence[Sequence[int]],
        begun: Iterator[tuple[StagedBatch, Copy]],
        device: torch.device,
    ) -> Generator[Batch, None, None]:
        self._verdict = verdict = Verdict(batches, device)
        for number, (staged, copied) in enumerate(begun):
            counted = self._counted(batches[number], staged.nbytes)
            yield counted | staged.decode(copied, verdict.of(number))

    def _counted(self, ids: Sequence[int], nbytes: int) -> Batch:
        self._counts.add(loads=len(ids), nbytes=nbytes, requests=len(ids))
        return {"sample": torch.tensor(ids)}

    def _list_paths(self, ids: Sequence[int]) -> list[Path]:
        return [self._locate(sample) for sample in ids]


def _read_ahead(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """What the calls give, in order; up to twice `workers` of them are begun ahead, in threads."""
    if not workers:
        yield from (call() for call in calls)
        return
    pool = ThreadPoolExecutor(workers)
    waiting, begun = iter(calls), deque[Future[T]]()
    try:
        # Two for each worker: one under way, and one that waits to be taken.
        for call in waiting:
            begun.append(pool.submit(call))
            if len(begun) > 2 * workers:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# Batches that a device decodes. The host looks at descriptions only. The device computes the CRC-32
# of the bodies, decodes, and marks a byte per sample where something is wrong: nobody waits for it
# until `Verdict` is asked.


@dataclass(frozen=True)
class StagedArray:
    """One array of a batch, to be decoded by a kernel into `spec`, samples first."""

    kernel: Kernel
    staged: Staged
    spec: Spec

    def decode(self, buffer: torch.Tensor, status: torch.Tensor) -> torch.Tensor:
        """The decoded array, soon on the device; `status` (samples,) uint8 as in `Kernel`."""
        kind = torch.from_numpy(np.empty(0, self.spec.dtype)).dtype
        shape = (self.staged.samples, *self.spec.shape)
        out = torch.empty(shape, dtype=kind, device=buffer.device)
        self.kernel.launch(self.staged.within(buffer), out, status)
        return out


@dataclass(frozen=True)
class StagedBatch:
    """A batch in a host buffer, to be copied as it is.

    Attributes:
        nbytes: Of the containers.
        bodies: Where their bodies lie, and the CRC-32 of each.
        arrays: What is decoded, by name.
    """

    nbytes: int
    bodies: Staged
    arrays: Mapping[str, StagedArray]

    def decode(self, copied: Copy, bad: torch.Tensor) -> Batch:
        """The arrays, soon on the device; `bad` as from `Verdict.of`."""
        copied.wait_for_copy()
        find_checksum().launch(self.bodies.within(copied.bytes), bad[0])
        return {name: each.decode(copied.bytes, bad[1]) for name, each in self.arrays.items()}


def read_batch(paths: Sequence[Path], buffer: HostBuffer) -> StagedBatch:
    """Reads containers into an empty buffer.

    Raises:
        InputError: A container is missing, or its description is damaged.
    """
    opened, nbytes = read_containers(paths, buffer, _open_staged)
    arrays = {name: _read_staged(name, opened, buffer) for name in opened[0].arrays}
    check = find_checksum().columns
    bodies = stage_rows(buffer, [check(each.body, each.body_crc) for each in opened])
    return StagedBatch(nbytes, bodies, arrays)


def _open_staged(content: memoryview) -> Opened:
    opened = unpack_unchecked(content)
    for encoded in opened.arrays.values():
        require_known(encoded.codec)
    return opened


def _read_staged(name: str, opened: Sequence[Opened], buffer: HostBuffer) -> StagedArray:
    encoded = [each.arrays[name] for each in opened if name in each.arrays]
    spec = require_alike(name, encoded, len(opened))
    kernel = find_kernel(encoded[0].codec)
    staged = stage_rows(buffer, [kernel.columns(each) for each in encoded])
    return StagedArray(kernel, staged, spec)


class Verdict:
    """What the device found wrong in an epoch: a byte per sample and kind, looked at when asked.

    Args:
        batches: The samples of each batch.
        device: Where they are decoded.
    """

    _KINDS = ("a body that is not of its CRC-32", "keys, codes or segments outside their tables")

    def __init__(self, batches: Sequence[Sequence[int]], device: torch.device) -> None:
        self._batches = batches
        self._ends = list(accumulate(map(len, batches)))
        places = self._ends[-1] if batches else 0
        self._bad = torch.zeros((len(self._KINDS), places), dtype=torch.uint8, device=device)
        self._unseen = False

    def of(self, batch: int) -> torch.Tensor:
        """(kinds, samples) uint8 on the device, for the kernels to write to."""
        self._unseen = True
        end = self._ends[batch]
        return self._bad[:, end - len(self._batches[batch]) : end]

    def require_good(self) -> None:
        """Waits for the device, once for all batches since the last time.

        Raises:
            InputError: A sample is damaged; named.
        """
        if not self._unseen:
            return
        self._unseen = False

        # One look for all batches since the last one, as it waits for the device.
        held = self._bad.to("cpu", copy=True).numpy()
        self._bad.zero_()
        if not held.any():
            return

        # Which samples are damaged in which way.
        samples = np.concatenate([np.asarray(each, np.int64) for each in self._batches])
        damages = []
        for kind, bad in zip(self._KINDS, held, strict=True):
            named = np.unique(samples[bad.astype(bool)]).tolist()
            if named:
                more = f" and {len(named) - NAMED_MOST} more" * (len(named) > NAMED_MOST)
                damages.append(f"found {kind} in samples {named[:NAMED_MOST]}{more}")
        raise InputError("; ".join(damages) + ": encode the data again")
