from __future__ import annotations

from torch.utils.data._utils import fetch


class _BaseDataLoaderIter:
    def __init__(self, loader):
        self._dataset, self._dataset_kind = loader.dataset, loader.kind
        self._num_workers, self._prefetch_factor = 0, None
        self._index_sampler = loader.places
        self._places = iter(loader.places)
        fetcher = (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher)[loader.kind]
        self._fetcher = fetcher(loader.dataset, True, loader.collate_fn, False)

    def __iter__(self):
        return self

    def __next__(self):
        return self._next_data()

    def _next_data(self):
        return self._fetcher.fetch(next(self._places))


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    pass


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """Never made: there are no workers."""

    def _reset(self, loader, first_iter=False):
        pass

    def _get_data(self):
        pass

    def _shutdown_workers(self):
        pass


class DataLoader:
    def __init__(self, dataset, batch_size=1, collate_fn=list):
        self.dataset, self.batch_size, self.collate_fn = dataset, batch_size, collate_fn
        self.kind = int(not hasattr(dataset, "__len__"))
        samples = 10**6 if self.kind else len(dataset)
        self.places = [
            range(first, min(first + batch_size, samples))
            for first in range(0, samples, batch_size)
        ]

    def __iter__(self):
        return _SingleProcessDataLoaderIter(self)
