"""The local part of a data set: what PyTorch's DataLoader sees of it on one rank."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from ..data.samples import SampleSet
from ..errors import InputError, UsageError
from ..loader.loader import Counts
from ..loader.prefetch import Background
from ..loader.stalls import READ_TIMEOUT_S, Retried
from ..ranks.messages import Bytes
from ..ranks.world import World
from .exchange_plan import Int64Array, Places, deal_at, deal_to
from .sources import ImageFiles, Item, Items, Source, open_source
from .storage import FolderStore, Measured, MemoryStore

Base = Any
"""A SampleSet, a Source, or a data set with __len__ and __getitem__."""

READY = 4
"""Samples that wait to be kept."""
IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".ppm", ".webp")


class Slot(int):
    """A slot as a `LocalSampler` visits it: at which place of which of its iterations."""

    place: int
    turn: int

    @classmethod
    def at(cls, slot: int, place: int, turn: int) -> Slot:
        """The slot at a place."""
        dealt = cls(slot)
        dealt.place, dealt.turn = place, turn
        return dealt


class SlotOrder:
    """Sees to it that no slot of a `LocalSampler` is left out: what is between may deal them out.

    Batches of a DataLoader with workers come to each of them in turns.
    """

    def __init__(self) -> None:
        self._turn, self._next = -1, -1

    def require_next(self, slots: Sequence[int]) -> None:
        """Raises UsageError where a batch has gaps, or leaves out what comes behind the last."""
        first, worker = slots[0] if slots else 0, get_worker_info()
        if not isinstance(first, Slot):
            return  # of another sampler
        # Places of a batch follow each other; with w workers, a worker gets every w-th batch.
        places = [slot.place for slot in slots if isinstance(slot, Slot)]
        wanted = self._next if first.turn == self._turn else first.place
        if places != list(range(wanted, wanted + len(slots))):
            raise UsageError(
                f"expected the slots of this rank at places {wanted} to {wanted + len(slots) - 1} "
                f"of its LocalSampler, found {places[:8]}: something deals them to ranks once "
                "more, as accelerator.prepare(loader) does, and Lightning without "
                "use_distributed_sampler=False; give accelerate the model and the optimizer only"
            )
        self._turn = first.turn
        self._next = wanted + len(slots) * (worker.num_workers if worker else 1)


class PartialLocalDataset(Dataset[Any]):
    """The samples that this rank holds, by slot: 0 .. n_r - 1.

    Nothing is read before the first sample is asked for, or `settle` is called; then the rank
    reads its share, and no sample from the source afterwards. `Scheduler` changes what is held.

    Args:
        base: A `SampleSet`, a `Source`, or any map-style data set (its items are pickled).
        transform: Of each sample, after the exchange: called whenever one is asked for. What it
            draws from Python's, NumPy's and PyTorch's own random numbers follows from the seed,
            the epoch and the sample, on whichever rank and in whichever worker.
        world: Ranks; default: as the launcher says.
        folder: On this node, for the samples; each rank takes a sub-folder. None: in memory. What
            a former run left there is used again where the data set is the same as then: that
            needs files that it names as attributes, or a `fingerprint`.
        partition: `shuffled`: homes are drawn at random; `blocks`: each rank's are contiguous.
        seed: Of the homes; the same on every rank.
        read_timeout_s: Longest wait for the source before it is asked again.
        fingerprint: What tells a map-style data set from others and from itself as it was, where
            that is not what its files tell.

    Attributes:
        store: What is here.
        partition: As given, like `seed` and `transform`.
        counts: What was read from the source.

    Raises:
        UsageError: A map-style data set has a transform of its own: it would be called once.
    """

    def __init__(
        self,
        base: Base,
        *,
        transform: Callable[[Any], Any] | None = None,
        world: World | None = None,
        folder: str | Path | None = None,
        partition: str = "shuffled",
        seed: int = 0,
        read_timeout_s: float = READ_TIMEOUT_S,
        fingerprint: str | None = None,
    ) -> None:
        self.world = World.detect() if world is None else world
        self._read_timeout_s, self.transform = read_timeout_s, transform
        self.source, self.partition, self.seed = _open_source(base, fingerprint), partition, seed
        ranks, rank = self.world.ranks, self.world.rank
        # What this rank holds at first follows from the seed: nothing is read yet.
        own = deal_to(rank, len(self.source), ranks, partition=partition, seed=seed)
        self.store = Measured(_open_store(folder, rank, self.source))
        self.counts = Counts()
        # Shared: DataLoader workers that live on see what was exchanged, and the epoch.
        self._held = torch.from_numpy(own.copy()).share_memory_()
        self._epoch = torch.zeros(1, dtype=torch.int64).share_memory_()
        self._settled, self._order = False, SlotOrder()

    def __len__(self) -> int:
        """n_r: samples of this rank, the same in every epoch."""
        return len(self._held)

    def __getitem__(self, slot: int) -> Item:
        """The sample in a slot, as the base has it (arrays by name for a `SampleSet`).

        Through the transform, if there is one.
        """
        if not -len(self) <= slot < len(self):
            raise IndexError(f"expected a slot below {len(self)}, found {slot}")
        if not self._settled:
            self.settle(self.held())
        sample = int(self._held[slot])
        item = self.source.decode(self.store.message(sample))
        if self.transform is None:
            return item
        # A transform draws the same for a sample in an epoch, whichever slot or worker it is in.
        with _seed_drawing(self.seed, int(self._epoch[0]), sample):
            return self._transformed(item)

    def __getitems__(self, slots: list[int]) -> list[Item]:
        """The samples in the slots of a batch.

        Raises:
            UsageError: They are of a `LocalSampler`, and not all that it has.
        """
        self._order.require_next(slots)
        return [self[slot] for slot in slots]

    def begin(self, epoch: int) -> None:
        """What a transform draws from now on is that of `epoch`."""
        self._epoch[0] = epoch

    def _transformed(self, item: Item) -> Item:
        assert self.transform is not None
        return self.transform(item)

    def dealt(self, places: Places) -> Int64Array:
        """Ids that were in some slots of any ranks before the first exchange."""
        samples, ranks = len(self.source), self.world.ranks
        return deal_at(places, samples, ranks, self.partition, self.seed)

    def held(self) -> Int64Array:
        """Ids in slot order."""
        ids: Int64Array = self._held.numpy().copy()
        return ids

    def settle(self, ids: Int64Array) -> int:
        """Holds exactly these samples; what is missing is read from the source.

        Returns:
            Samples read.

        Raises:
            InputError: A sample cannot be read or kept.
        """
        wanted = set(ids.tolist())
        # First what is of no use any more goes: memory holds one share.
        for sample in self.store:
            if sample not in wanted:
                self.store.discard(sample)
        missing = [i for i in ids.tolist() if i not in self.store]
        # Storage that does not answer is asked again for what is still missing.
        with closing(Retried(lambda _given: self._begin_reading(ids))) as reading:
            for message in reading:
                self.store.add(message)
        self._held[:] = torch.from_numpy(ids)
        self._settled = True
        return len(missing)

    def _begin_reading(self, ids: Int64Array) -> Background[Bytes]:
        """The samples that are not here yet, read by a thread that may be left behind."""
        missing = [i for i in ids.tolist() if i not in self.store]
        return Background(self.source.read(missing, self.counts), READY, self._read_timeout_s)

    def switch(self, ids: Int64Array, gone: Sequence[int]) -> None:
        """Takes received samples into slots, and forgets those that were given away."""
        self._held[:] = torch.from_numpy(ids)
        for sample in gone:
            self.store.discard(sample)


class ImageFolder(PartialLocalDataset):
    """This rank's part of a folder that has a sub-folder of images for each class.

    Items are (picture, label), as torchvision's ImageFolder has them: an RGB PIL image, through
    `transform` if there is one.

    Args:
        root: Of all images, seen by every rank.
        class_file: One class a line; the line is the label. None: the sub-folders' names, sorted.
        transform: Of the picture; see `PartialLocalDataset`.
        world: As for `PartialLocalDataset`, like the following.
        local_folder: Its `folder`.
        seed: Of the homes.

    Raises:
        InputError: No images, or a class without a sub-folder.
    """

    def __init__(
        self,
        root: str | Path,
        class_file: str | Path | None = None,
        transform: Callable[[Any], Any] | None = None,
        *,
        world: World | None = None,
        local_folder: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        self.classes = _read_classes(Path(root), class_file)
        files = _list_images(Path(root), self.classes)
        paths, labels = [path for path, _ in files], [label for _, label in files]
        source = ImageFiles(paths, labels, f"images in {root}", _make_pair)
        super().__init__(source, transform=transform, world=world, folder=local_folder, seed=seed)

    def _transformed(self, item: Item) -> Item:
        picture, label = item
        return super()._transformed(picture), label


def _make_pair(_sample: int, picture: Item, label: int) -> tuple[Item, int]:
    return picture, label


@contextmanager
def _seed_drawing(*key: int) -> Iterator[None]:
    """Within it, random numbers follow from the key alone; behind it they go on as before."""
    # One seed for each of the three generators that transforms draw from.
    words = np.random.SeedSequence([each % (1 << 64) for each in key]).generate_state(3)
    held = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        random.seed(int(words[0]))
        np.random.seed(words[1])
        torch.default_generator.manual_seed(int(words[2]))
        yield
    finally:
        random.setstate(held[0])
        np.random.set_state(held[1])
        torch.set_rng_state(held[2])


def _open_source(base: Base, fingerprint: str | None) -> Source:
    if isinstance(base, SampleSet):
        return open_source(base)
    # A source of the user's own, a SampleSet, or any map-style data set.
    if all(hasattr(base, name) for name in ("read", "decode", "identity")):
        source: Source = base
        return source
    if not hasattr(base, "__getitem__") or not hasattr(base, "__len__"):
        raise UsageError(
            f"expected a data set with __len__ and __getitem__, found {type(base).__name__}"
        )
    return Items(base, fingerprint)


def _open_store(folder: str | Path | None, rank: int, source: Source) -> MemoryStore | FolderStore:
    if folder is None:
        return MemoryStore()
    # What an earlier run left is used where the data set is known to be the same.
    version, own = getattr(source, "version", None), getattr(source, "fingerprint", None)
    fingerprint = own() if own is not None else source.identity()
    return FolderStore(Path(folder) / f"rank{rank:05d}", source.identity(), fingerprint, version)


def _read_classes(folder: Path, class_file: str | Path | None) -> list[str]:
    if class_file is None:
        if not folder.is_dir():
            raise InputError(f"expected a folder of classes at {folder}, found none: name another")
        return sorted(each.name for each in folder.iterdir() if each.is_dir())
    try:
        lines = Path(class_file).read_text().splitlines()
    except OSError as error:
        raise InputError(f"expected class names in {class_file}, found: {error}") from error
    return [line.strip() for line in lines if line.strip()]


def _list_images(folder: Path, classes: Sequence[str]) -> list[tuple[Path, int]]:
    """Every image with its label, in the order of classes and names: the same on every rank."""
    images: list[tuple[Path, int]] = []
    for label, name in enumerate(classes):
        if not (folder / name).is_dir():
            raise InputError(f"expected a folder {name} in {folder}, found none: correct the file")
        # Sorted: all ranks see the same ids, whatever order the file system lists them in.
        paths = sorted(p for p in (folder / name).rglob("*") if p.suffix.lower() in IMAGES)
        images += [(path, label) for path in paths]
    if not images:
        raise InputError(f"expected images in {folder}, found none: name another folder")
    return images
