"""What of DLIO's interface a data loader plugin sees, where DLIO is not installed.

As in DLIO 2.0.1: `BaseDataLoader`, the one `ConfigArguments`, `DatasetType`, `FormatType`, and the
spans of `dft_ai`, which note their names here instead of writing a trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from enum import Enum
from types import ModuleType, SimpleNamespace


class DatasetType(Enum):
    TRAIN = "train"
    VALID = "valid"

    def __str__(self):
        return self.value


class Shuffle(Enum):
    OFF = "off"
    SEED = "seed"

    def __str__(self):
        return self.value


class Spans:
    """Counts of spans by name; steps as they were told."""

    def __init__(self):
        self.noted, self.steps = [], []
        self.dataloader = SimpleNamespace(fetch=SimpleNamespace(iter=self._iter))
        self.data = SimpleNamespace(
            item=lambda: self._span("item"), preprocess=lambda: self._span("preprocess")
        )

    def update(self, step):
        self.steps.append(step)

    def _iter(self, iterator):
        for each in iterator:
            self.noted.append("fetch.iter")
            yield each

    @contextmanager
    def _span(self, name):
        yield
        self.noted.append(name)


def config(folder, files, *, rank=0, ranks=1, **more):
    """DLIO's ConfigArguments of one rank: `files` of training data in `folder`/train."""
    values = {
        "my_rank": rank,
        "comm_size": ranks,
        "storage_root": str(folder.parent),
        "data_folder": folder.name,
        "file_list_train": [str(file) for file in files],
        "file_list_eval": [],
        "num_samples_per_file": 1,
        "batch_size": 2,
        "batch_size_eval": 1,
        "epochs": 2,
        "seed": 7,
        "sample_shuffle": Shuffle.SEED,
        "file_shuffle": Shuffle.OFF,
        "read_threads": 1,
        "pin_memory": True,
        "preprocess_time": {},
        "record_length_stdev": 0,
        "record_length_resize": 0,
    } | more
    total = len(files) * values["num_samples_per_file"]
    return SimpleNamespace(**values, total_samples_train=total, total_samples_eval=0)


def reader_class(state):
    """DLIO's base class of readers."""

    class FormatReader(ABC):
        def __init__(self, dataset_type, thread_index):
            self._args, self.open_file_map = state.args, {}

        @abstractmethod
        def read_index(self, sample, step):
            each, index = divmod(sample, self._args.num_samples_per_file)
            name = self._args.file_list_train[each]
            self.open_file_map[name] = self.open(name)
            found = self.get_sample(name, index)
            self.close(name)
            return found

    return FormatReader


def modules(state):
    """Name -> module, for sys.modules. `state.args` is the configuration, `state.spans` theirs."""

    class BaseDataLoader(ABC):
        def __init__(self, format_type, dataset_type, epoch_number, data_loader_type):
            self._args = state.args
            self.dataset_type, self.format_type = dataset_type, format_type
            self.epoch_number, self.data_loader_type = epoch_number, data_loader_type
            training = dataset_type is DatasetType.TRAIN
            self.batch_size = state.args.batch_size if training else state.args.batch_size_eval

        @abstractmethod
        def read(self): ...

        @abstractmethod
        def next(self): ...

        @abstractmethod
        def finalize(self): ...

    utility = {"dft_ai": state.spans, "sleep": state.slept.append}
    made = {
        "dlio_benchmark": {},
        "dlio_benchmark.data_loader": {},
        "dlio_benchmark.data_loader.base_data_loader": {"BaseDataLoader": BaseDataLoader},
        "dlio_benchmark.reader": {},
        "dlio_benchmark.reader.reader_handler": {"FormatReader": reader_class(state)},
        "dlio_benchmark.utils": {},
        "dlio_benchmark.utils.utility": utility,
    }
    found = {name: ModuleType(name) for name in made}
    for name, content in made.items():
        vars(found[name]).update(content)
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(found[parent], own, found[name])
    return found
