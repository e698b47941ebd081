"""Whose data loader a run used, and what helps in the words of the framework it is written in.

Advice names no other's loader. A program that trains with Lightning makes no DataLoader call that
could be edited, and one whose batches come from Keras has no DataLoader at all: what helps is said
where its authors would look. Event files tell nothing: PyTorch writes the same as TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from vanidl.model.trace import MPIIO, Trace

PYTORCH, TENSORFLOW = "PyTorch", "TensorFlow"
SHARDS = {PYTORCH: "DistributedSampler", TENSORFLOW: "tf.data shard"}
PREFETCH = {
    PYTORCH: "more DataLoader workers or a larger prefetch_factor",
    TENSORFLOW: "tf.data prefetch",
}
BACKGROUND = {
    PYTORCH: "DataLoader(num_workers=N, prefetch_factor=...)",
    TENSORFLOW: "tf.data prefetch",
}
_FILES_OF = {
    PYTORCH: re.compile(r"/torch/.*\.(py|pyc|so)\b"),
    TENSORFLOW: re.compile(r"/tensorflow/.*\.(py|pyc|so)\b"),
}

_OF_TF_DATA = re.compile(r"IteratorGetNext|^_\w*Dataset \d")
"""A kernel of tf.data in a profile; one of its classes as the recorder names it."""


def infer_frameworks(trace: Trace, files: Iterable[str]) -> tuple[str, ...]:
    """Whose loader it is, likeliest first.

    A benchmark's settings say it; else profiles, code that was imported, and data do. Both where
    nothing tells; none of them where nothing tells and ranks used MPI-IO or timed MPI.

    Args:
        trace: the run.
        files: paths of the dataset.
    """
    if trace.benchmarks and (stated := _get_stated_frameworks(trace)) is not None:
        return stated
    sources = " ".join(profile.source for profile in trace.profiles)
    records = any("tfrecord" in path.lower() for path in files)
    if "pytorch" in sources or any("DataLoader" in name for name in trace.spans.names):
        return (PYTORCH,)
    if any(_OF_TF_DATA.search(name) for name in trace.spans.names):
        return (TENSORFLOW,)
    # Several imported frameworks leave it open: then profiles and data decide the order.
    imported = _find_imported_frameworks(trace)
    if len(imported) == 1:
        return imported
    if "xplane" in sources or "trace-viewer" in sources or imported:
        return (TENSORFLOW, PYTORCH) if records else (PYTORCH, TENSORFLOW)
    if records:
        return (TENSORFLOW,)
    return () if trace.mpi or MPIIO in trace.counters else (PYTORCH, TENSORFLOW)


def _get_stated_frameworks(trace: Trace) -> tuple[str, ...] | None:
    """Those that benchmarks were set to run, () for others than these; None: not recorded."""
    found = {benchmark.framework for benchmark in trace.benchmarks}
    if not all(found):
        return None
    return tuple(name for name in (PYTORCH, TENSORFLOW) if name.lower() in found)


def find_named_frameworks(trace: Trace) -> tuple[str, ...]:
    """Those that profiles or imported code name; () where nothing does."""
    sources = " ".join(profile.source for profile in trace.profiles)
    if "pytorch" in sources or "xplane" in sources or "trace-viewer" in sources:
        return infer_frameworks(trace, ())
    return _find_imported_frameworks(trace)


def _find_imported_frameworks(trace: Trace) -> tuple[str, ...]:
    return tuple(
        name
        for name, code in _FILES_OF.items()
        if any(code.search(path) for path in trace.files.path)
    )


def join_phrases(found: Iterable[str], by_framework: Mapping[str, str], otherwise: str = "") -> str:
    """The phrases of those frameworks after one another; `otherwise` where there is none."""
    known = [by_framework[name] for name in found if name in by_framework]
    return ", ".join(known) or otherwise


# --- In their words ------------------------------------------------------------------------------

LIGHTNING, TRAINER, FASTAI = "Lightning", "Hugging Face Trainer", "fastai"
KERAS, GRAIN, JAX = "Keras", "Grain", "JAX"
WITHOUT_TORCH = frozenset({KERAS, GRAIN, JAX})
"""Those in which no code of PyTorch's or of tf.data's is of use."""

AHEAD, KEEP = "ahead", "keep"
"""What to change: read and decode ahead; keep workers, and what they read ahead, over epochs."""

_TITLES = {
    (LIGHTNING, AHEAD): "Read ahead with workers of the LightningDataModule's loader",
    (LIGHTNING, KEEP): "Keep the workers over epochs",
    (TRAINER, AHEAD): "Read ahead with TrainingArguments(dataloader_num_workers=...)",
    (TRAINER, KEEP): "Keep the workers over epochs",
    (FASTAI, AHEAD): "Read ahead with workers of the DataLoaders",
    (KERAS, AHEAD): "Read ahead with workers of the PyDataset",
    (GRAIN, AHEAD): "Read ahead with Grain's threads, or its worker processes",
    (JAX, AHEAD): "Read ahead in a thread while the step computes",
    (JAX, KEEP): "Read the first batches of an epoch before it begins",
}

_CODE = {
    (LIGHTNING, AHEAD): (
        "def train_dataloader(self):  # of the LightningDataModule\n"
        "    return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True,\n"
        "                      num_workers={workers}, persistent_workers=True)",
        "Worker processes load batches while the step computes; Lightning asks this method once.",
    ),
    (LIGHTNING, KEEP): (
        "def train_dataloader(self):  # of the LightningDataModule\n"
        "    return DataLoader(self.train_set, batch_size=self.batch_size, shuffle=True,\n"
        "                      num_workers={workers}, persistent_workers=True)",
        "Workers stay over epochs, unless Trainer(reload_dataloaders_every_n_epochs=...) makes a "
        "new loader.",
    ),
    (TRAINER, AHEAD): (
        "arguments = TrainingArguments(\n    output_dir,\n    dataloader_num_workers={workers},\n"
        "    dataloader_persistent_workers=True,\n    dataloader_prefetch_factor=2,\n)",
        "Worker processes load batches while the step computes, for training and evaluation.",
    ),
    (TRAINER, KEEP): (
        "arguments = TrainingArguments(\n    output_dir,\n    dataloader_num_workers={workers},\n"
        "    dataloader_persistent_workers=True,\n)",
        "Workers stay over epochs; the loader of evaluations is kept from one to the next, too.",
    ),
    (FASTAI, AHEAD): (
        "dls = datablock.dataloaders(source, bs=batch_size, num_workers={workers})",
        "Worker processes load batches while the step computes.",
    ),
    (KERAS, AHEAD): (
        "class Batches(keras.utils.PyDataset):\n    def __init__(self, ...):\n"
        "        super().__init__(workers={workers}, use_multiprocessing=True, max_queue_size=10)",
        "Processes call __getitem__ while the step computes; with threads alone "
        "(use_multiprocessing=False) decoding in Python holds the step up.",
    ),
    (GRAIN, AHEAD): (
        "dataset = dataset.to_iter_dataset(grain.ReadOptions(num_threads=16, "
        "prefetch_buffer_size=500))\n"
        "dataset = dataset.mp_prefetch(grain.MultiprocessingOptions(num_workers={workers}))",
        "Threads read ahead; processes decode where Python does that. Of grain.DataLoader the "
        "arguments are read_options and worker_count.",
    ),
    (JAX, AHEAD): (
        "def ahead(batches, size=2):\n"
        "    with concurrent.futures.ThreadPoolExecutor(1) as pool:\n"
        "        batches, queue = iter(batches), collections.deque()\n"
        "        def ask():\n"
        "            queue.append(pool.submit(next, batches, None))\n"
        "        for _ in range(size):\n"
        "            ask()\n"
        "        while (batch := queue.popleft().result()) is not None:\n"
        "            ask()\n"
        "            yield jax.device_put(batch)",
        "A thread reads, and copies to the device, while the step computes. Decoding in Python "
        "needs processes: Grain, or a DataLoader that gives NumPy arrays.",
    ),
}  # fmt: skip

_LOADERS = (
    ("PyDataset", KERAS), ("JAXEpochIterator", KERAS), ("TFEpochIterator", KERAS),
    ("MapDataset", GRAIN), ("IterDataset", GRAIN), ("MapBatch", GRAIN), ("BatchMap", GRAIN),
)  # fmt: skip
_IMPORTED = (
    ("lightning", LIGHTNING), ("transformers", TRAINER), ("fastai", FASTAI), ("keras", KERAS),
    ("grain", GRAIN),
)  # fmt: skip


def find_loop_framework(trace: Trace) -> str:
    """The framework in which the loop is written, "" for PyTorch's and tf.data's own, or none.

    Loaders tell it, else what was imported when the loop began: of several the outermost.
    """
    # Names of loaders have the class of their dataset in brackets.
    names = [name for name in trace.spans.names if "(" in name]
    if any(_OF_TF_DATA.search(name) for name in names):
        return ""
    for word, framework in _LOADERS:
        if any(word in name for name in names):
            return framework
    imported = {name for profile in trace.profiles for name in profile.frameworks}
    for name, framework in _IMPORTED:
        if name in imported:
            return framework
    on_torch = any("DataLoader" in name for name in trace.spans.names)
    return JAX if "jax" in imported and "tensorflow" not in imported and not on_torch else ""


def get_title(framework: str, change: str) -> str:
    """One line, "" where the table has none."""
    return _TITLES.get((framework, change), "")


def get_code(framework: str, change: str, workers: int) -> tuple[str, str]:
    """What to copy, and a sentence on it; "" where the table has none."""
    found, explanation = _CODE.get((framework, change), ("", ""))
    return found.replace("{workers}", str(workers)), explanation
