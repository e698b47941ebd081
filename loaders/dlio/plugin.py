"""The classes that DLIO's `reader.data_loader_classname` names.

    reader:
      data_loader: pytorch
      data_loader_classname: vanidl_loaders.dlio.ScheduledDataLoader
      data_loader_sampler: index

DLIO gives files, batch size, epochs, seed, shuffling and read threads; what is left comes from
`options.VARIABLE`. A loader is made once and goes through all epochs, so what it keeps in memory
lasts. Every rank gets as many batches of an epoch: the whole global batches of the data set.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, cast

from ..errors import InputError
from ..loader.loader import Batch, Loader, Settings, find_loader
from ..loader.prefetch import Background
from ..ranks.world import World
from .benchmark import BaseDataLoader, fetched, preprocess_span, sleep
from .ending import ending_all_ranks
from .options import loader_options
from .samples import DlioSamples, dlio_samples, require_whole_files

READY = 3
"""Preprocessed batches that wait for the training process or are in the making."""


class PluginDataLoader(BaseDataLoader):
    """A loader of the registry as a data loader of DLIO; subclasses say which."""

    loader: ClassVar[str]
    """Name in `vanidl_loaders.loader.loader.LOADERS`."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:  # noqa: ANN401
        super().__init__(format_type, dataset_type, epoch_number, "custom")
        self._loader: Loader | None = None
        self._epochs_begun = 0

    def read(self) -> None:
        """Makes the loader. Of the data the first file is read, for shape and type.

        Raises:
            LoadersError: The data set is not one that this loader can read, or an option is wrong.
        """
        if self._loader is None:
            with ending_all_ranks():
                self._loader = self._made()

    def next(self) -> Iterator[Batch]:
        """The batches of the next epoch, each inside DLIO's span of a wait."""
        self.read()
        loader = cast(Loader, self._loader)
        loader.set_epoch(self._epochs_begun)
        self._epochs_begun += 1
        batches = iter(loader)
        if self._args.preprocess_time:
            batches = self._preprocessed(batches)
        with ending_all_ranks():
            yield from fetched(batches)

    def finalize(self) -> None:
        """Behind each epoch; behind the last the loader closes its files and ends its threads."""
        if self._loader is not None and self._epochs_begun >= self._args.epochs:
            self._loader.close()
            self._loader = None

    def _made(self) -> Loader:
        options = loader_options(find_loader(self.loader))
        samples, settings = self._samples(), self._settings(options)
        if not settings.steps(samples):
            raise InputError(
                f"expected samples for a step of {settings.world.ranks} ranks with batches of "
                f"{settings.batch}, found {len(samples)}: lower reader.batch_size"
            )
        return self._opened(samples, settings, options)

    def _opened(self, samples: DlioSamples, settings: Settings, options: Namespace) -> Loader:
        return find_loader(self.loader).open_loader(samples, settings, options)

    def _samples(self) -> DlioSamples:
        training = str(self.dataset_type) == "train"
        args = self._args
        files = args.file_list_train if training else args.file_list_eval
        folder = Path(args.storage_root, args.data_folder, str(self.dataset_type)).absolute()
        paths = [Path(each).absolute() for each in files]
        uneven = args.record_length_stdev > 0
        return dlio_samples(
            folder,
            paths,
            args.num_samples_per_file,
            str(self.format_type),
            resized_nbytes=args.record_length_resize if uneven else 0,
        )

    def _settings(self, options: Namespace) -> Settings:
        args = self._args
        return Settings(
            world=_world(args.my_rank, args.comm_size),
            batch=self.batch_size,
            epochs=args.epochs,
            seed=args.seed,
            shuffle=any(str(each) != "off" for each in (args.sample_shuffle, args.file_shuffle)),
            drop_last=True,
            workers=args.read_threads,
            pin_memory=bool(getattr(args, "pin_memory", True)),
            memory_nbytes=options.memory,
            read_timeout_s=options.read_timeout_s,
        )

    def _preprocessed(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches, after as many sleeps as samples, `reader.read_threads` at a time."""
        with closing(Background(self._sleeping(batches), READY)) as ready:
            yield from ready

    def _sleeping(self, batches: Iterator[Batch]) -> Generator[Batch, None, None]:
        with ThreadPoolExecutor(max(1, self._args.read_threads)) as pool:
            for batch in batches:
                for _ in pool.map(self._preprocess, range(len(batch["sample"]))):
                    pass
                yield batch

    def _preprocess(self, _sample: int) -> None:
        with preprocess_span():
            sleep(self._args.preprocess_time)


class ScheduledDataLoader(PluginDataLoader):
    """Buffers and loads planned for all epochs."""

    loader = "scheduled"


class PartialLocalDataLoader(PluginDataLoader):
    """Each rank keeps its share of the samples, and a fraction is exchanged each epoch."""

    loader = "pls"


class SpatialDataLoader(PluginDataLoader):
    """Each rank reads its block of every sample of its group.

    P ranks share a sample, so a group of them has P times DLIO's batch size: a step has as many
    samples, and a rank as many bytes, as with any other loader.
    """

    loader = "spatial"

    def _opened(self, samples: DlioSamples, settings: Settings, options: Namespace) -> Loader:
        require_whole_files(samples, ("hdf5", "npy"), self.loader)
        from ..spatial.loader import SpatialLoader, spatial_settings

        chosen = spatial_settings(samples, settings, options)
        of_group = replace(settings, batch=settings.batch * chosen.division.parts)
        return SpatialLoader(samples, of_group, chosen)


class DecodedDataLoader(PluginDataLoader):
    """Encoded files, decoded on the CPU or a GPU."""

    loader = "decoded"

    def _opened(self, samples: DlioSamples, settings: Settings, options: Namespace) -> Loader:
        require_whole_files(samples, ("hdf5", "npy"), self.loader)
        from ..decoders.dataset import open_containers
        from .containers import DlioContainers

        options.encoded = options.encoded or f"{samples.folder}-encoded"
        return open_containers(DlioContainers, samples, settings, options)


def _world(rank: int, ranks: int) -> World:
    """The launcher's view of the ranks where it is DLIO's, too."""
    found = World.detect()
    if (found.rank, found.ranks) == (rank, ranks):
        return found
    return World.detect(rank=rank, ranks=ranks)
