"""The loader `decoded`: reads containers and decodes them on the CPU or a GPU.

Samples come in the DistributedSampler's order, as from the baseline. With workers, that many
threads read ahead, straight into a ring of host buffers; on the CPU they decode, too. For a GPU
the buffers are page-locked, and the threads begin the copy on a stream of its own; the training
process launches the kernels behind it and waits for nothing.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch
from torch.utils.data import Dataset

from ..data.order import draw_epoch_order, pad_order, rank_order
from ..data.samples import SampleSet
from ..errors import InputError, MissingError
from ..loader.batches import pin_batch
from ..loader.epochs import EpochLoader
from ..loader.loader import Batch, Loader, Settings
from ..loader.options import declare_decoded
from ..loader.stats import Counts
from .coding import decode_batch, open_sample
from .folders import ENCODED, sample_path
from .staging import Copy, CudaTransfer, HostBuffer, Ring, Transfer, read_containers

if TYPE_CHECKING:
    from .on_device import StagedBatch, Verdict

NAME = "decoded"
HELP = "encoded samples (python -m vanidl_loaders encode), decoded on the CPU or a GPU"
add_arguments = declare_decoded
DEVICES = ("auto", "cpu", "cuda")

T = TypeVar("T")


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader of encoded samples."""
    return open_containers(DecodedLoader, samples, settings, options)


def open_containers(
    loader: type[DecodedLoader],
    samples: SampleSet,
    settings: Settings,
    options: argparse.Namespace,
) -> DecodedLoader:
    """A loader of this class, as the options describe it."""
    folder = Path(options.encoded) if options.encoded else samples.folder / ENCODED
    device = _resolve_device(options.decode_on, settings)
    transfer = CudaTransfer(device) if device.type == "cuda" else None
    return loader(samples, settings, folder, transfer=transfer)


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
    ) -> None:
        """`transfer`: to the device that decodes; None: the CPU decodes."""
        self._samples, self._folder, self._transfer = samples, Path(folder), transfer
        if not self.container(0).exists():
            raise InputError(
                f"expected containers in {folder}, found none: make them with "
                f"python -m vanidl_loaders encode {samples.folder} {folder}"
            )
        super().__init__(settings, Counts(), settings.steps(samples), settings.identity(samples))
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

    def container(self, sample: int) -> Path:
        """Where the container of a sample lies."""
        return sample_path(self._folder, sample)

    def _batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        batches = self._ids(epoch)[start:]
        workers = self._settings.workers
        if self._transfer is None:
            return self._from_host(
                batches, _read_ahead([partial(self._host, b) for b in batches], workers)
            )
        self.verify()  # of an iteration that was left
        calls = [partial(self._begin, ids, self._transfer) for ids in batches]
        return self._from_device(batches, _read_ahead(calls, workers), self._transfer.device)

    def _ids(self, epoch: int) -> list[list[int]]:
        settings = self._settings
        order = draw_epoch_order(
            len(self._samples), seed=settings.seed, epoch=epoch, shuffle=settings.shuffle
        )
        padded = pad_order(
            order, ranks=settings.world.ranks, batch=settings.batch, drop_last=settings.drop_last
        )
        ids = rank_order(padded, settings.world).tolist()
        return [ids[at : at + settings.batch] for at in range(0, len(ids), settings.batch)]

    def _host(self, ids: Sequence[int]) -> tuple[int, Batch]:
        """Runs in a thread: bytes read, and the decoded arrays."""
        buffer = self._ring.take()
        try:
            samples, nbytes = read_containers(self._paths(ids), buffer, open_sample)
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

    def _begin(self, ids: Sequence[int], transfer: Transfer) -> tuple[StagedBatch, Copy]:
        """Runs in a thread: reads a batch and begins its copy to the device."""
        from .on_device import read_batch

        buffer, copied = self._ring.take(), None
        try:
            staged = read_batch(self._paths(ids), buffer)
            copied = transfer.begin(buffer.used)
        finally:
            self._ring.give_back(buffer, copied)
        return staged, copied

    def _from_device(
        self,
        batches: Sequence[Sequence[int]],
        begun: Iterator[tuple[StagedBatch, Copy]],
        device: torch.device,
    ) -> Generator[Batch, None, None]:
        from .on_device import Verdict

        self._verdict = verdict = Verdict(batches, device)
        for number, (staged, copied) in enumerate(begun):
            counted = self._counted(batches[number], staged.nbytes)
            yield counted | staged.decode(copied, verdict.of(number))

    def _counted(self, ids: Sequence[int], nbytes: int) -> Batch:
        self._counts.add(loads=len(ids), nbytes=nbytes, requests=len(ids))
        return {"sample": torch.tensor(ids)}

    def _paths(self, ids: Sequence[int]) -> list[Path]:
        return [self.container(sample) for sample in ids]


def _read_ahead(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
    """What the calls give, in order; up to twice `workers` of them are begun ahead, in threads."""
    if not workers:
        yield from (call() for call in calls)
        return
    pool = ThreadPoolExecutor(workers)
    waiting, begun = iter(calls), deque[Future[T]]()
    try:
        for call in waiting:
            begun.append(pool.submit(call))
            if len(begun) > 2 * workers:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _resolve_device(decode_on: str, settings: Settings) -> torch.device:
    if decode_on == "cpu" or (decode_on == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MissingError("expected a CUDA device, found none: --decode-on auto or cpu")
    return torch.device("cuda", settings.world.local_rank)
