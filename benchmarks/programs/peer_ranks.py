"""One rank of benchmarks/loaders/peers.py: goes through all epochs with one loader."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from benchmarks.measure import evict
from vanidl_loaders.data.order import draw_epoch_order, pad_order, rank_order
from vanidl_loaders.data.samples import SampleSet, open_samples
from vanidl_loaders.ranks.world import World

if TYPE_CHECKING:
    from torch import Tensor

RANKS, BATCH, EPOCHS, THREADS, FRACTION = 2, 16, 3, 8, 0.85
FIELDS, SHAPE = ("diffraction", "amplitude", "phase"), (128, 128)
Sample = dict[str, np.ndarray[Any, Any]]


def places(samples: int) -> int:
    """Samples that all ranks together may keep: as many for each rank."""
    return int(FRACTION * samples) // RANKS * RANKS


def run_rank(kind: str, options: dict[str, Any], data: str, cache: str) -> None:
    """Goes through all epochs in step with the other ranks; prints JSON."""
    import torch

    torch.set_num_threads(1)
    from torch import distributed

    from vanidl_loaders.ranks.messages import process_group

    samples, world = open_samples(data), World.detect()
    job = Job(samples, world, Path(cache), options)
    with process_group(world):
        loader, spans, used = KINDS[kind](job), list[tuple[int, int]](), list[int]()
        for epoch in range(EPOCHS):
            if world.rank == 0:
                for path in job.files():
                    evict(path)
            distributed.barrier()
            begin, together, ids = time.time_ns(), torch.zeros(1), 0
            for batch in islice(loader.epoch(epoch), job.steps):
                distributed.all_reduce(together)
                ids += len(batch[FIELDS[-1]])
            used.append(ids)
            spans.append((begin, time.time_ns()))
        kept = loader.kept()
        distributed.barrier()
        loader.close()
    sys.stdout.write(json.dumps({"spans": spans, "used": used, "kept": kept}) + "\n")
    sys.stdout.flush()
    os._exit(0)  # threads of some peers do not end


@dataclass(frozen=True)
class Job:
    """What a loader is made for."""

    samples: SampleSet
    world: World
    cache: Path
    options: dict[str, Any]

    @property
    def steps(self) -> int:
        """Of a rank in an epoch."""
        return len(self.samples) // (RANKS * BATCH)

    @property
    def threads(self) -> int:
        """That read."""
        return int(self.options.get("threads", THREADS))

    @property
    def folder(self) -> Path:
        """The samples in the format of this loader."""
        return self.samples.folder / self.options.get("format", "")

    @property
    def memory_nbytes(self) -> int:
        """That all ranks together may keep."""
        return places(len(self.samples)) * self.samples.sample_nbytes

    def files(self) -> list[Path]:
        """What this loader reads."""
        inside = self.folder if "format" in self.options else None
        return sorted(p for p in inside.rglob("*") if p.is_file()) if inside else [self.rows]

    @property
    def rows(self) -> Path:
        """The HDF5 file."""
        return self.samples.path(0)

    def ids(self, epoch: int) -> list[int]:
        """DistributedSampler's, of this rank."""
        order = draw_epoch_order(len(self.samples), seed=0, epoch=epoch)
        padded = pad_order(order, ranks=RANKS, batch=BATCH, drop_last=True)
        return [int(each) for each in rank_order(padded, self.world)]


class Rows:
    """Samples by id: a `pread` of each array, without HDF5's lock."""

    def __init__(self, path: Path) -> None:
        with h5py.File(path) as file:
            self._offset = {name: file[name].id.get_offset() for name in FIELDS}
        self._path, self._file, self._process = path, -1, -1

    def __getitem__(self, sample: int) -> Sample:
        if self._process != os.getpid():
            self._file, self._process = os.open(self._path, os.O_RDONLY), os.getpid()
        return {name: self._read(at, sample) for name, at in self._offset.items()}

    def _read(self, at: int, sample: int) -> np.ndarray[Any, Any]:
        array = np.empty(SHAPE, np.float32)
        os.preadv(self._file, [array.data], at + sample * array.nbytes)
        return array


def stacked(samples: Iterable[Sample]) -> dict[str, Tensor]:
    """A batch."""
    import torch

    each = list(samples)
    return {name: torch.from_numpy(np.stack([s[name] for s in each])) for name in FIELDS}


class Peer:
    """One loader; keeps no sample unless it says so."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches with a field each."""
        raise NotImplementedError

    def kept(self) -> int:
        """Samples that all ranks together keep now, beside batches under way."""
        return 0

    def close(self) -> None:
        """Ends what is open."""


class Ours(Peer):
    """The loader `scheduled`: one budget for buffer and staging."""

    def __init__(self, job: Job) -> None:
        from vanidl_loaders.loader.loader import Settings
        from vanidl_loaders.loader.registry import open_loader

        super().__init__(job)
        memory = job.memory_nbytes // RANKS
        settings = Settings(job.world, BATCH, EPOCHS, memory_nbytes=memory)
        self._loader = open_loader("scheduled", job.samples, settings, job.options)

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches."""
        self._loader.set_epoch(epoch)
        return iter(self._loader)

    def kept(self) -> int:
        """Places of buffer and staging."""
        stats: Any = self._loader.stats()
        buffers = RANKS // stats.node_ranks
        return int(stats.buffer_capacity * buffers + stats.staging_capacity * RANKS)

    def close(self) -> None:
        """Ends threads."""
        self._loader.close()


class Torch(Peer):
    """PyTorch's DataLoader; workers live on from epoch to epoch."""

    def __init__(self, job: Job) -> None:
        from torch.utils.data import DataLoader, Dataset

        class Samples(Dataset[Sample]):
            rows = Rows(job.rows)

            def __len__(self) -> int:
                return len(job.samples)

            def __getitem__(self, sample: int) -> Sample:
                return self.rows[sample]

        super().__init__(job)
        self._ids: list[int] = []
        self._loader = DataLoader(
            Samples(),
            BATCH,
            sampler=self._ids,
            num_workers=job.options["workers"],
            persistent_workers=True,
            collate_fn=stacked,
        )

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches."""
        self._ids[:] = self.job.ids(epoch)
        return iter(self._loader)


class Spdl(Peer):
    """SPDL: a pipeline of threads."""

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches."""
        from spdl.pipeline import PipelineBuilder

        rows = Rows(self.job.rows)
        pipeline = (
            PipelineBuilder()
            .add_source(self.job.ids(epoch))
            .pipe(rows.__getitem__, concurrency=self.job.threads, output_order="input")
            .aggregate(BATCH)
            .pipe(stacked)
            .add_sink(2)
            .build(num_threads=self.job.threads)
        )
        with pipeline.auto_stop():
            yield from pipeline


class Nodes(Peer):
    """torchdata nodes: a mapper of threads."""

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches."""
        from torchdata import nodes

        rows = Rows(self.job.rows)
        source = nodes.IterableWrapper(self.job.ids(epoch))
        mapped = nodes.ParallelMapper(source, rows.__getitem__, self.job.threads, method="thread")
        batches = nodes.Mapper(nodes.Batcher(mapped, BATCH), stacked)
        return iter(nodes.Loader(nodes.Prefetcher(batches, 2)))


class Grain(Peer):
    """Google Grain: a MapDataset read by threads."""

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches."""
        import grain

        rows = Rows(self.job.rows)
        reads = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=2 * BATCH)
        source = grain.MapDataset.source(self.job.ids(epoch)).map(rows.__getitem__)
        return iter(source.to_iter_dataset(reads).batch(BATCH))


class Dali(Peer):
    """NVIDIA DALI's CPU pipeline: one .npy file per sample."""

    def __init__(self, job: Job) -> None:
        from nvidia.dali import fn, pipeline_def
        from nvidia.dali.data_node import DataNode

        super().__init__(job)
        files = [each.name for each in job.files()]

        @pipeline_def(batch_size=BATCH, num_threads=THREADS, device_id=None)
        def read() -> DataNode:
            return fn.readers.numpy(
                file_root=str(job.folder),
                files=files,
                shard_id=job.world.rank,
                num_shards=RANKS,
                shuffle_after_epoch=True,
                seed=0,
                dont_use_mmap=True,
                prefetch_queue_depth=2,
            )

        self._pipeline = read()
        self._pipeline.build()

    def epoch(self, _: int) -> Iterator[Any]:
        """Batches."""
        for _step in range(self.job.steps):
            (batch,) = self._pipeline.run()
            yield {FIELDS[-1]: batch.as_array()}


class WebData(Peer):
    """WebDataset: tar shards, a cache of files with its own limit, 2 workers.

    Files with plain paths it takes for local and never caches.
    """

    def __init__(self, job: Job) -> None:
        import webdataset
        from torch.utils.data import DataLoader

        super().__init__(job)
        shards = [f"pipe:cat {each}" for each in job.files()]
        stream = webdataset.WebDataset(
            shards,
            shardshuffle=len(shards),
            seed=0,
            nodesplitter=webdataset.split_by_node,
            cache_dir=str(job.cache),
            cache_size=job.memory_nbytes,
        )
        stream = stream.shuffle(4 * BATCH, seed=0).decode().repeat()
        self._loader = DataLoader(
            stream, BATCH, num_workers=2, persistent_workers=True, collate_fn=self._batch
        )
        self._batches = iter(self._loader)

    @staticmethod
    def _batch(entries: list[dict[str, Any]]) -> dict[str, Tensor]:
        return stacked({name: each[f"{name}.npy"] for name in FIELDS} for each in entries)

    def epoch(self, _: int) -> Iterator[Any]:
        """Batches of an endless stream: ranks may have unequal numbers of shards."""
        return self._batches

    def kept(self) -> int:
        """Files in the cache."""
        return kept_files(self.job)


class LitData(Peer):
    """LitData: chunks copied into a cache of each rank with half of the limit, 2 workers.

    Two ranks with one cache wait for chunks that the other has deleted.
    """

    def __init__(self, job: Job) -> None:
        from litdata import StreamingDataLoader, StreamingDataset

        super().__init__(job)
        dataset = StreamingDataset(
            f"local:{job.folder}",
            cache_dir=str(job.cache / str(job.world.rank)),
            shuffle=True,
            drop_last=True,
            seed=0,
            max_cache_size=job.memory_nbytes // RANKS,
        )
        self._loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=2)

    def epoch(self, _: int) -> Iterator[Any]:
        """Batches."""
        return iter(self._loader)

    def kept(self) -> int:
        """Chunks in the cache."""
        return kept_files(self.job)


class Streaming(Peer):
    """MosaicML Streaming: MDS shards copied into a cache with a limit, 2 workers."""

    def __init__(self, job: Job) -> None:
        from streaming import StreamingDataset
        from torch.utils.data import DataLoader

        super().__init__(job)
        dataset = StreamingDataset(
            remote=str(job.folder),
            local=str(job.cache),
            shuffle=True,
            shuffle_seed=0,
            batch_size=BATCH,
            cache_limit=job.memory_nbytes,
        )
        self._loader = DataLoader(dataset, BATCH, num_workers=2, persistent_workers=True)

    def epoch(self, _: int) -> Iterator[Any]:
        """Batches."""
        return iter(self._loader)

    def kept(self) -> int:
        """Shards in the cache."""
        return kept_files(self.job)


class Simple(Peer):
    """What is simple: some samples stay in memory of the node; 8 threads read the rest."""

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        shape = (places(len(job.samples)), len(FIELDS), *SHAPE)
        self._held = shared(job.cache / "held", shape, np.float32)
        self._filled = shared(job.cache / "filled", shape[:1], np.uint8)
        self._rows, self._pool = Rows(job.rows), ThreadPoolExecutor(THREADS)

    def epoch(self, epoch: int) -> Iterator[Any]:
        """Batches, two ahead."""
        ids = self.job.ids(epoch)
        batches = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]
        ahead = [[self._pool.submit(self._get, i) for i in each] for each in batches[:3]]
        for following in [*batches[3:], [], [], []]:
            yield stacked(each.result() for each in ahead.pop(0))
            ahead.append([self._pool.submit(self._get, i) for i in following])

    def _get(self, sample: int) -> Sample:
        if sample < len(self._held) and self._filled[sample]:
            return dict(zip(FIELDS, self._held[sample], strict=True))
        found = self._rows[sample]
        if sample < len(self._held):
            self._held[sample] = list(found.values())
            self._filled[sample] = 1
        return found

    def kept(self) -> int:
        """Places."""
        return len(self._held)


def shared(path: Path, shape: tuple[int, ...], kind: type[np.generic]) -> np.memmap[Any, Any]:
    """Zeroed memory that all ranks share."""
    nbytes = int(np.prod(shape)) * np.dtype(kind).itemsize
    with path.open("ab") as file:
        file.truncate(nbytes)
    return np.memmap(path, kind, "r+", shape=shape)


def kept_files(job: Job) -> int:
    """Samples' worth of files in the cache."""
    nbytes = sum(each.stat().st_size for each in job.cache.rglob("*") if each.is_file())
    return round(nbytes / job.samples.sample_nbytes)


KINDS: dict[str, type[Peer]] = {
    "ours": Ours,
    "dataloader": Torch,
    "spdl": Spdl,
    "nodes": Nodes,
    "grain": Grain,
    "dali": Dali,
    "webdataset": WebData,
    "litdata": LitData,
    "streaming": Streaming,
    "simple": Simple,
}


if __name__ == "__main__":
    run_rank(*json.loads(sys.argv[1]))
