"""The classes that DLIO's `reader.data_loader_classname` and `reader.reader_classname` name.

    reader:
      data_loader: pytorch
      data_loader_classname: vanidl_loaders.dlio.ScheduledDataLoader
      data_loader_sampler: index

DLIO gives files, batch size, epochs, seed, shuffling and read threads; what is left comes from the
environment variable `VARIABLE`, as DLIO's configuration passes no keys on that it does not know. A
loader is made once and goes through all epochs, so what it keeps in memory lasts. Every rank gets
as many batches of an epoch: the whole global batches of the data set.

DLIO's ranks meet at a barrier behind each step. A rank that raises there waits for the others in
MPI's finalization, and they for it: so a loader that fails ends all ranks, with its line.

    reader:
      reader_classname: vanidl_loaders.dlio.OwnFilesReader

is for DLIO's own loaders: files that a real training reads, instead of generated ones. DLIO's
readers expect the names that its generator gives to arrays, and its generator has one layout of
HDF5: files of another one take other requests. Here the variable `ARRAY` names the array, and a
file is opened for each sample, its row read, and closed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn, cast

import h5py
import numpy as np

from ..errors import InputError, LoadersError, UsageError
from ..loader.loader import Batch, Loader, Settings
from ..loader.prefetch import Background
from ..loader.registry import LoaderModule, add_limits, find_loader
from ..loader.stalls import StalledError
from ..ranks.ending import end_ranks
from ..ranks.world import World
from .benchmark import BaseDataLoader, FormatReader, fetched, preprocess_span, sleep
from .samples import DlioSamples, open_dlio_samples, require_whole_files

READY = 3
"""Preprocessed batches that wait for the training process or are in the making."""


class PluginDataLoader(BaseDataLoader):
    """A loader of the registry as a data loader of DLIO; subclasses say which."""

    loader: ClassVar[str]
    """Name in `vanidl_loaders.loader.registry.LOADERS`."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int) -> None:  # noqa: ANN401
        super().__init__(format_type, dataset_type, epoch_number, "custom")
        self._loader: Loader | None = None
        self._epochs_begun = 0

    def read(self) -> None:
        """Makes the loader. Of the data the first file is read, for shape and type.

        Raises:
            LoadersError: The data set is not one that this loader can read, or an option is wrong.
        """
        if self._loader is not None:
            return
        # Where one rank refuses, all have to end: the others would wait for it.
        with ending_all_ranks():
            options = parse_loader_options(find_loader(self.loader))
            samples, settings = self._find_samples(), self._make_settings(options)
            if not settings.steps(samples):
                raise InputError(
                    f"expected samples for a step of {settings.world.ranks} ranks with batches of "
                    f"{settings.batch}, found {len(samples)}: lower reader.batch_size"
                )
            self._loader = self._open_loader(samples, settings, options)

    def next(self) -> Iterator[Batch]:
        """The batches of the next epoch, each inside DLIO's span of a wait."""
        self.read()
        loader = cast(Loader, self._loader)
        # DLIO asks for an iterator each epoch, and does not say which epoch it is.
        loader.set_epoch(self._epochs_begun)
        self._epochs_begun += 1
        batches = iter(loader)
        if self._args.preprocess_time:
            batches = self._preprocess_ahead(batches)
        with ending_all_ranks():
            yield from fetched(batches)

    def finalize(self) -> None:
        """Behind each epoch; behind the last the loader closes its files and ends its threads."""
        if self._loader is not None and self._epochs_begun >= self._args.epochs:
            self._loader.close()
            self._loader = None

    def _open_loader(self, samples: DlioSamples, settings: Settings, options: Namespace) -> Loader:
        return find_loader(self.loader).open_loader(samples, settings, options)

    def _find_samples(self) -> DlioSamples:
        training = str(self.dataset_type) == "train"
        args = self._args
        files = args.file_list_train if training else args.file_list_eval
        folder = Path(args.storage_root, args.data_folder, str(self.dataset_type)).absolute()
        paths = [Path(each).absolute() for each in files]
        uneven = args.record_length_stdev > 0
        return open_dlio_samples(
            folder,
            paths,
            args.num_samples_per_file,
            str(self.format_type),
            resized_nbytes=args.record_length_resize if uneven else 0,
        )

    def _make_settings(self, options: Namespace) -> Settings:
        args = self._args
        # The launcher's view of the ranks where it is DLIO's, too.
        world = World.detect()
        if (world.rank, world.ranks) != (args.my_rank, args.comm_size):
            world = World.detect(rank=args.my_rank, ranks=args.comm_size)
        return Settings(
            world=world,
            batch=self.batch_size,
            epochs=args.epochs,
            seed=args.seed,
            # DLIO shuffles samples and files apart; one of both is enough to want another order.
            shuffle=any(str(each) != "off" for each in (args.sample_shuffle, args.file_shuffle)),
            drop_last=True,
            workers=args.read_threads,
            pin_memory=bool(getattr(args, "pin_memory", True)),
            memory_nbytes=options.memory,
            read_timeout_s=options.read_timeout_s,
        )

    def _preprocess_ahead(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches, after as many sleeps as samples, `reader.read_threads` at a time."""
        with closing(Background(self._sleep_before_batches(batches), READY)) as ready:
            yield from ready

    def _sleep_before_batches(self, batches: Iterator[Batch]) -> Generator[Batch, None, None]:
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

    def _open_loader(self, samples: DlioSamples, settings: Settings, options: Namespace) -> Loader:
        require_whole_files(samples, ("hdf5", "npy"), self.loader)
        from ..spatial.loader import SpatialLoader, spatial_settings

        chosen = spatial_settings(samples, settings, options)
        of_group = replace(settings, batch=settings.batch * chosen.division.parts)
        return SpatialLoader(samples, of_group, chosen)


class DecodedDataLoader(PluginDataLoader):
    """Encoded files, decoded on the CPU or a GPU."""

    loader = "decoded"

    def _open_loader(self, samples: DlioSamples, settings: Settings, options: Namespace) -> Loader:
        require_whole_files(samples, ("hdf5", "npy"), self.loader)
        from ..decoders.dataset import open_containers
        from ..decoders.folders import SUFFIX

        def locate(folder: Path, sample: int) -> Path:
            # As `python -m vanidl_loaders encode DATA/train DATA/train-encoded` lays them out: in
            # the same folders as DLIO's files, one container beside the other.
            path = samples.path(sample)
            return folder / path.relative_to(samples.folder).with_name(f"{path.name}{SUFFIX}")

        options.encoded = options.encoded or f"{samples.folder}-encoded"
        return open_containers(samples, settings, options, locate)


ARRAY = "VANIDL_DLIO_ARRAY"
"""Environment variable with the name of the dataset in HDF5 files, of the member in NPZ files."""


class OwnFilesReader(FormatReader):
    """Row i of the array (HDF5), or what lies at i on its last axis (NPZ, as DLIO has it)."""

    def __init__(self, dataset_type: Any, thread_index: int, epoch: int) -> None:  # noqa: ANN401, ARG002
        super().__init__(dataset_type, thread_index)
        self._format = str(self._args.format)
        self._array = os.environ.get(ARRAY, "")
        if self._format not in ("hdf5", "npz") or not self._array:
            raise UsageError(
                f"expected dataset.format hdf5 or npz and the name of the array in ${ARRAY}, found "
                f"{self._format} and {self._array or 'none'}: set both"
            )

    def open(self, filename: str) -> Any:  # noqa: ANN401 - what get_sample takes
        """The opened file; of NPZ the array."""
        if self._format == "hdf5":
            return h5py.File(filename)
        with np.load(filename, allow_pickle=False) as members:
            return members[self._array]

    def get_sample(self, filename: str, sample_index: int) -> Any:  # noqa: ANN401 - an array
        """Reads one sample; what DLIO hands on is a constant, as with its own readers."""
        opened = self.open_file_map[filename]
        if self._format == "hdf5":
            return opened[self._array][sample_index]
        return opened[..., sample_index]

    def close(self, filename: str) -> None:
        """Ends a file."""
        if self._format == "hdf5":
            self.open_file_map[filename].close()

    def next(self) -> Iterator[Any]:
        """Batches, for loaders that iterate."""
        yield from super().next()

    def read_index(self, image_idx: int, step: int) -> Any:  # noqa: ANN401
        """One sample by its number."""
        return super().read_index(image_idx, step)

    def finalize(self) -> None:
        """No file stays open."""

    def is_index_based(self) -> bool:
        """Samples can be asked for by number."""
        return True

    def is_iterator_based(self) -> bool:
        """Batches can be iterated over."""
        return True


VARIABLE = "VANIDL_LOADER_OPTIONS"
"""Environment variable with options as `python -m vanidl_loaders train` has them."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"expected options of {self.prog} in ${VARIABLE}, found: {message}")


def parse_loader_options(module: LoaderModule) -> argparse.Namespace:
    """The loader's options and limits: those in the environment, the others at their defaults.

    Raises:
        UsageError: An option that the loader does not have.
    """
    parser = _Parser(prog=module.NAME, add_help=False)
    module.add_arguments(parser)
    add_limits(parser)
    return parser.parse_args(shlex.split(os.environ.get(VARIABLE, "")))


@contextmanager
def ending_all_ranks() -> Iterator[None]:
    """Whatever a loader refuses inside is written as one line, and ends all ranks of MPI.

    Raises:
        LoadersError: There is one rank only, or all fail: DLIO shows it as it likes.
    """
    try:
        yield
    except LoadersError as error:
        why = " ".join(str(error).split())
        sys.stderr.write(f"vanidl_loaders: {why}\n")
        sys.stderr.flush()
        end_ranks(error.exit_status, why)
        if isinstance(error, StalledError):  # what hangs would hold up the interpreter's end
            os._exit(error.exit_status)
        raise
