"""The loader `decoded`: reads containers and decodes them on the CPU or a GPU.

Samples come in the DistributedSampler's order, as from the baseline. With workers, that many
threads read ahead; on the CPU they decode, too. On a GPU they put a batch into one page-locked
buffer, which the training process copies to the device and decodes there in one launch.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset

from ..data.order import epoch_order, padded_order, rank_order
from ..data.samples import SampleSet
from ..errors import InputError
from ..loader.batches import pinned
from ..loader.epochs import EpochLoader
from ..loader.loader import Batch, Loader, Settings
from ..loader.stats import Counts
from .coding import decode_batch, open_sample
from .container import Encoded
from .folders import ENCODED, sample_path
from .kernels import find_kernel
from .staging import Staged, require_good

NAME = "decoded"
HELP = "encoded samples (python -m vanidl_loaders encode), decoded on the CPU or a GPU"
DEVICES = ("auto", "cpu", "cuda")

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the containers are, and where they are decoded."""
    add = parser.add_argument
    add("--encoded", metavar="DIR", help=f"folder of the containers (default DATA/{ENCODED})")
    add("--decode-on", default="auto", choices=DEVICES, help="auto: a GPU where there is one")


def open_loader(samples: SampleSet, settings: Settings, options: argparse.Namespace) -> Loader:
    """The loader of encoded samples."""
    folder = Path(options.encoded) if options.encoded else samples.folder / ENCODED
    return DecodedLoader(samples, settings, folder, device=_device(options.decode_on, settings))


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
        encoded, _ = read_container(self._folder, sample)
        batch = decode_batch([encoded], device="cpu", threads=1)
        decoded = {name: tensor[0] for name, tensor in batch.items()}
        return decoded | {"sample": torch.tensor(sample)}


class DecodedLoader(EpochLoader):
    """Batches of decoded samples in the DistributedSampler's order."""

    def __init__(
        self,
        samples: SampleSet,
        settings: Settings,
        folder: str | Path,
        *,
        device: str | torch.device = "cpu",
    ) -> None:
        if not sample_path(Path(folder), 0).exists():
            raise InputError(
                f"expected containers in {folder}, found none: make them with "
                f"python -m vanidl_loaders encode {samples.folder} {folder}"
            )
        super().__init__(settings, Counts(), settings.steps(samples), settings.identity(samples))
        self._samples, self._folder, self._device = samples, Path(folder), torch.device(device)
        self._statuses: list[torch.Tensor] = []

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch; behind the last, the device has decoded all."""
        yield from super().__iter__()
        self._require_good()

    def _batches(self, epoch: int, start: int) -> Generator[Batch, None, None]:
        calls = [partial(self._load, ids) for ids in self._ids(epoch)[start:]]
        loaded = _ahead(calls, self._settings.workers)
        return (self._finished(*each) for each in loaded)

    def _ids(self, epoch: int) -> list[list[int]]:
        settings = self._settings
        order = epoch_order(
            len(self._samples), seed=settings.seed, epoch=epoch, shuffle=settings.shuffle
        )
        padded = padded_order(
            order, ranks=settings.world.ranks, batch=settings.batch, drop_last=settings.drop_last
        )
        ids = rank_order(padded, settings.world).tolist()
        return [ids[at : at + settings.batch] for at in range(0, len(ids), settings.batch)]

    def _load(self, ids: list[int]) -> tuple[list[int], int, Batch | dict[str, _OnHost]]:
        """Runs in a thread: ids, bytes read, and tensors (CPU) or what the device decodes."""
        read = [read_container(self._folder, sample) for sample in ids]
        samples, nbytes = [encoded for encoded, _ in read], sum(size for _, size in read)
        if self._device.type == "cuda":
            return ids, nbytes, {name: _OnHost.of(samples, name) for name in samples[0]}
        threads = 1 if self._settings.workers else None
        batch = decode_batch(samples, device="cpu", threads=threads)
        return ids, nbytes, pinned(batch) if self._settings.pin_memory else batch

    def _finished(self, ids: list[int], nbytes: int, loaded: Batch | dict[str, _OnHost]) -> Batch:
        self._counts.add(loads=len(ids), nbytes=nbytes, requests=len(ids))
        self._require_good()  # of the batch before, which the device has long decoded
        batch: Batch = {"sample": torch.tensor(ids)}
        for name, value in loaded.items():
            if isinstance(value, _OnHost):
                batch[name], status = value.decode(self._device)
                self._statuses.append(status)
            else:
                batch[name] = value
        return batch

    def _require_good(self) -> None:
        statuses, self._statuses = self._statuses, []
        for status in statuses:
            require_good(status)


class _OnHost:
    """The staged samples of one array, to be decoded on a device."""

    def __init__(self, samples: list[Encoded]) -> None:
        first = samples[0]
        self._kernel, self._spec = find_kernel(first.codec), first.decoded
        self._staged: Staged = self._kernel.stage(samples, pin_memory=True)
        self._count = len(samples)

    @classmethod
    def of(cls, samples: list[dict[str, Encoded]], name: str) -> _OnHost:
        """The array of that name of all samples."""
        return cls([sample[name] for sample in samples])

    def decode(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """The decoded array and the status, both soon on the device."""
        kind = torch.from_numpy(np.empty(0, self._spec.dtype)).dtype
        out = torch.empty((self._count, *self._spec.shape), dtype=kind, device=device)
        return out, self._kernel.launch(self._staged.to(device), out)


def read_container(folder: Path, sample: int) -> tuple[dict[str, Encoded], int]:
    """The arrays of one sample of a set, and the bytes of its container.

    Raises:
        InputError: The container is missing or damaged.
    """
    path = sample_path(folder, sample)
    try:
        content = path.read_bytes()
    except FileNotFoundError as error:
        raise InputError(
            f"expected a container {path}, found none: go on with python -m vanidl_loaders encode"
        ) from error
    return open_sample(content), len(content)


def _ahead(calls: Sequence[Callable[[], T]], workers: int) -> Iterator[T]:
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


def _device(decode_on: str, settings: Settings) -> torch.device:
    if decode_on == "cpu" or (decode_on == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    return torch.device("cuda", settings.world.local_rank)
