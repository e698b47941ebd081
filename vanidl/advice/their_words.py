"""Remedies as the framework says them in which a program is written: one table, by what to change.

A program that trains with Lightning makes no DataLoader call that could be edited, and one whose
batches come from Keras has no DataLoader at all: what helps is said where its authors would look.
"""

from __future__ import annotations

from vanidl.model.trace import Trace

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


def written_in(trace: Trace) -> str:
    """The framework in which the loop is written, "" for PyTorch's and tf.data's own, or none.

    Loaders tell it, else what was imported when the loop began: of several the outermost.
    """
    names = [name for name in trace.spans.names if "(" in name]
    for word, framework in _LOADERS:
        if any(word in name for name in names):
            return framework
    imported = {name for profile in trace.profiles for name in profile.frameworks}
    for name, framework in _IMPORTED:
        if name in imported:
            return framework
    on_torch = any("DataLoader" in name for name in trace.spans.names)
    return JAX if "jax" in imported and "tensorflow" not in imported and not on_torch else ""


def title(framework: str, change: str) -> str:
    """One line, "" where the table has none."""
    return _TITLES.get((framework, change), "")


def code(framework: str, change: str, workers: int) -> tuple[str, str]:
    """What to copy, and a sentence on it; "" where the table has none."""
    found, explanation = _CODE.get((framework, change), ("", ""))
    return found.replace("{workers}", str(workers)), explanation
