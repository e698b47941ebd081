"""What to do about a cause: the title of the action, in one line, and the code for it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from pathlib import PurePosixPath

from vanidl.advice import frameworks as in_words
from vanidl.advice.changes import EVERY_WORKER, FEW_WORKERS, Predicted, make_loader_call
from vanidl.advice.facts import MUCH_PICKLED, Facts
from vanidl.advice.finding import Finding, Remedy
from vanidl.advice.frameworks import AHEAD, KEEP, PYTORCH, TENSORFLOW
from vanidl.advice.opens import PACK
from vanidl.advice.proof import UNKNOWN, get_own_command
from vanidl.advice.recording_gaps import OF_NO_KIND
from vanidl.formatting.units import nbytes, number, plural
from vanidl.schema.dataclass import dataclass
from vanidl.wording.account import NETWORK

LOADER, KEEP_OPEN, SAVE_BEHIND, SAVE_SELDOM, SYNC_SELDOM, SEND_BEHIND, KEEP_FILES, PREPARE = (
    "loader", "keep_open", "save_behind", "save_seldom", "sync_seldom", "send_behind", "keep_files",
    "prepare",
)  # fmt: skip
"""What a patch changes of a program."""

_READ_BUFFER = "8 << 20"
_MANY_READS = 16  # at once, where no number was predicted


@dataclass(frozen=True, slots=True)
class Context:
    """What a remedy may depend on: the run, the best change, and the findings of the cause."""

    run: Facts
    findings: tuple[Finding, ...]
    best: Predicted | None

    @property
    def workers(self) -> int:
        """DataLoader workers per rank that the best change has, else two."""
        return int(self.best.amount or 2) if self.best and self.counts_workers else 2

    @property
    def counts_workers(self) -> bool:
        """Whether a number of workers is the best change."""
        return self.best is not None and self.best.lever == "workers"

    @property
    def splits_first(self) -> bool:
        """Whether more workers as such would yield every sample once more: of a stream."""
        one = self.counts_workers and self.workers == 1
        return self.run.trace.streams and PYTORCH in self.run.frameworks and not one

    @property
    def codes(self) -> set[str]:
        """Codes of the findings."""
        return {finding.code for finding in self.findings}

    @property
    def ranks(self) -> int:
        """How many ranks the run has."""
        return max(len(self.run.trace.ranks), 1)


@dataclass(frozen=True, slots=True)
class Advice:
    """The line, and what to copy."""

    title: str
    remedies: tuple[Remedy, ...] = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Of the run's own DataLoader, as source text, what a patch gives it; of `call` settings."""
    call: str = ""
    """Of the program's own calls, which a patch changes: a kind of `patches`."""

    @property
    def edit(self) -> str:
        """What a patch changes of the program, "" for nothing."""
        return self.call or (LOADER if self.arguments else "")


def suggest_remedies(code: str, context: Context) -> Advice:
    """What to do about a cause; of one that is not known, what its finding says."""
    known = _ADVICE.get(code)
    return known(context) if known else Advice(context.findings[0].advice)


_THAT_SPLIT = " that split the dataset between them"
_SPLIT = """\
def __iter__(self):  # of the dataset
    info = torch.utils.data.get_worker_info()  # None in the training process
    first, step = (info.id, info.num_workers) if info else (0, 1)
    # Before samples are decoded or shuffled: workers shuffle each in their own way.
    for row in itertools.islice(self.rows(), first, None, step):
        yield decode(row)

"""


def _make_torch_prefetch(context: Context, **arguments: str) -> Remedy:
    """A DataLoader with more workers; of a stream, with the code that splits it between them."""
    remedy = _make_torch_remedy(**arguments)
    # Workers of a stream would each give all samples, unless it is split between them.
    if context.run.trace.streams:
        return replace(remedy, code=_SPLIT + remedy.code, explanation=EVERY_WORKER)
    if context.run.trace.indexes:
        return remedy
    more = "An IterableDataset has to split its samples by get_worker_info() first."
    return replace(remedy, explanation=f"{remedy.explanation} {more}")


def _make_torch_remedy(**arguments: str) -> Remedy:
    lines = [f"    {name}={value}," for name, value in arguments.items()]
    code = "\n".join(["loader = DataLoader(", "    dataset,", "    batch_size=batch_size,",
                      *lines, ")"])  # fmt: skip
    return Remedy("PyTorch", code, "Worker processes load batches while the step computes.")


def _make_loader_remedy(name: str, options: str, context: Context) -> Remedy:
    hosts = len(context.run.trace.hosts)
    call = make_loader_call(name, options, ranks=context.ranks, hosts=hosts)
    return Remedy(f"{name} loader of vanidl_loaders", call.command, call.explanation)


def _get_worker_arguments(context: Context, ahead: str = "2") -> Mapping[str, str]:
    """Arguments of the run's loader with more workers, where its loop and dataset take them."""
    if context.run.written_in or context.splits_first or context.best is None:
        return {}
    if context.best.lever == "ahead":
        return {"prefetch_factor": ahead}
    if context.best.lever != "workers":
        return {}
    # Workers that live for one epoch have nothing to persist for.
    keeps = {"persistent_workers": "True"} if context.run.fetched_epochs > 1 else {}
    return {"num_workers": str(context.workers), **keeps}


def _make_scheduled_remedy(context: Context) -> Remedy:
    return _make_loader_remedy("scheduled", " --buffer-fraction 0.5", context)


def _suggest_warm_start(context: Context) -> Advice:
    remedy = _make_torch_remedy(
        num_workers="num_workers", persistent_workers="True", prefetch_factor="4"
    )
    explained = Remedy(
        remedy.title,
        remedy.code,
        "Workers stay over epochs, and begin the next epoch's batches sooner."
        + (f" As many as now: {EVERY_WORKER}" if context.run.trace.streams else ""),
    )
    tensorflow = Remedy(
        "TensorFlow",
        "dataset = dataset.repeat(epochs).prefetch(tf.data.AUTOTUNE)",
        "One pipeline over all epochs: its buffers do not run empty in between.",
    )
    # An iterator is created for each batch: use one for all.
    if "epoch_ends" in context.codes and context.run.leaves_passes:
        one = Remedy(
            "Python",
            "batches = iter(loader)  # before the loop\n"
            "try:\n"
            "    batch = next(batches)\n"
            "except StopIteration:\n"
            "    batches = iter(loader)\n"
            "    batch = next(batches)",
            "Workers start once a pass, not once a batch.",
        )
        title = "Take all batches of one iterator: workers are started anew for each"
        return Advice(title, (one, *_select_remedies(context, explained, tensorflow, KEEP)))
    # The data set itself is pickled to each worker: a path to it is enough.
    if "input_bound_workers" in context.codes and context.run.pickled_nbytes >= MUCH_PICKLED:
        mapped = Remedy(
            "PyTorch",
            "def __getitem__(self, i):  # of the data set, which holds a path instead of a list\n"
            "    if self.index is None:\n"
            '        self.index = np.load(self.path, mmap_mode="r")\n'
            "    return self.read(self.index[i])",
            "What a worker is started with is then some KiB.",
        )
        title = "Keep the list of samples out of the data set: it is pickled to each worker"
        return Advice(title, (mapped,))
    if "input_bound_workers" in context.codes and not context.run.starts_workers_anew:
        return Advice("Start workers faster, and before the training begins")
    # Workers that each epoch starts anew stay; else only first batches can come sooner.
    if context.run.starts_workers_anew:
        kept = {"persistent_workers": "True"} if not context.run.written_in else {}
        both = _select_remedies(context, explained, tensorflow, KEEP)
        return Advice("Keep the workers over epochs", both, kept)
    title = "Read the first batches of an epoch before it begins"
    return Advice(title, _select_remedies(context, tensorflow=tensorflow, change=KEEP))


def _select_remedies(
    context: Context,
    torch: Remedy | None = None,
    tensorflow: Remedy | None = None,
    change: str = "",
) -> tuple[Remedy, ...]:
    """The remedies of the frameworks of the run, in the words of the one it is written in."""
    framework = context.run.written_in
    if framework and change:
        code, explanation = in_words.get_code(framework, change, context.workers)
        return (Remedy(framework, code, explanation),) if code else ()
    if framework in in_words.WITHOUT_TORCH:
        return ()
    both = {PYTORCH: torch, TENSORFLOW: tensorflow}
    return tuple(found for name in context.run.frameworks if (found := both[name]) is not None)


def _suggest_read_ahead(context: Context) -> Advice:
    # The title: in the words of the framework, else with the change that was predicted best.
    if theirs := in_words.get_title(context.run.written_in, AHEAD):
        title = theirs + (_THAT_SPLIT if context.splits_first else "")
    elif context.run.frameworks == (TENSORFLOW,):
        reads = f"{context.workers} parallel reads" if context.counts_workers else "parallel reads"
        title = f"Read ahead with tf.data: {reads} and a prefetch"
        if _has_few_files(context):
            title = f"Write {context.workers} files, and read them at once with tf.data"
    elif context.best is not None and context.best.lever == "ahead":
        title = "Read twice as many batches ahead"
    elif context.best is not None:
        of_each = " per rank" if context.ranks > 1 else ""
        worker = "DataLoader worker" if PYTORCH in context.run.frameworks else "worker"
        title = f"Read ahead with {plural(context.workers, worker)}{of_each}"
        if context.splits_first:
            title += _THAT_SPLIT
    elif context.splits_first:
        title = f"Read ahead with DataLoader workers{_THAT_SPLIT}"
    elif PYTORCH in context.run.frameworks:
        title = "Read ahead with DataLoader workers"
    else:
        title = "Read ahead while the step computes"
    # 2 is PyTorch's own default for each worker.
    ahead = "4" if context.best and context.best.lever == "ahead" else "2"
    torch = _make_torch_prefetch(
        context,
        num_workers=str(context.workers),
        prefetch_factor=ahead,
        persistent_workers="True",
    )
    both = _select_remedies(context, torch, _make_parallel_reads(context), AHEAD)
    return Advice(
        title, (*both, _make_scheduled_remedy(context)), _get_worker_arguments(context, ahead)
    )


def _has_few_files(context: Context) -> bool:
    """Whether the dataset has fewer files than were predicted to be read at once best."""
    data = context.run.results.dataset
    return data is not None and context.counts_workers and 0 < len(data.files) < context.workers


def _make_parallel_reads(context: Context) -> Remedy:
    """TensorFlow's parallel reads, each of a file of its own, and what writes as many files."""
    split = (
        "records = tf.data.TFRecordDataset(files)\n"
        f"for i in range({context.workers}):  # once\n"
        '    with tf.io.TFRecordWriter(f"part-{i}.tfrecord") as part:\n'
        f"        for record in records.shard({context.workers}, i):\n"
        "            part.write(record.numpy())\n\n"
    )
    # AUTOTUNE stays at few reads for many epochs where files are short.
    reads = context.workers if context.counts_workers else _MANY_READS
    code = (
        f"dataset = tf.data.TFRecordDataset(files, num_parallel_reads={reads})\n"
        "dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE)\n"
        "dataset = dataset.batch(batch_size).prefetch(tf.data.AUTOTUNE)"
    )
    few = _has_few_files(context)
    return Remedy(
        TENSORFLOW,
        split + code if few else code,
        f"Threads read {reads} files at once and parse while the step computes."
        + (" One file is read by one thread, however many there are." if few else ""),
    )


def _suggest_decoding(context: Context) -> Advice:
    # A number of workers is named only where it was predicted.
    workers = context.counts_workers
    count = plural(context.workers, "worker") if workers else "more workers"
    torch = _make_torch_prefetch(
        context,
        num_workers=str(context.workers) if workers else "num_workers",
        prefetch_factor="2",
        persistent_workers="True",
    )
    tensorflow = Remedy(
        "TensorFlow",
        "dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE)"
        ".prefetch(tf.data.AUTOTUNE)",
        "Decodes samples side by side, ahead of the step.",
    )
    decoded = _make_loader_remedy("decoded", " --encoded ENCODED --decode-on auto", context)
    title = f"Decode in {count}, or on the GPU"
    if context.splits_first:
        title = f"Decode in {count}{_THAT_SPLIT}, or on the GPU"
    both = _select_remedies(context, torch, tensorflow, AHEAD)
    # More workers than cores decode no faster: then the device is what is left.
    most = context.run.computing_workers
    if not workers and most is not None and context.run.workers_of_rank >= most:
        return Advice(
            f"Decode less, or on the GPU: {plural(most, 'worker')} use all cores", (decoded,)
        )
    return Advice(title, (*both, decoded), _get_worker_arguments(context))


def _suggest_keeping_data(context: Context) -> Advice:
    data = context.run.results.dataset
    what = f" ({nbytes(data.unique_bytes)})" if data and data.unique_bytes else ""
    copy = Remedy(
        "Copy to memory before training",
        "cp -r DATA /dev/shm/data",
        "Every later read comes from memory; nothing in the training changes but the path.",
    )
    cache = Remedy(
        "TensorFlow",
        "dataset = dataset.cache()  # after the reads, before shuffle and batch",
        "The first epoch fills the cache, later ones read from it.",
    )
    # Ranks that shuffle over all data can keep a part each and exchange some of it.
    partial_local = _make_loader_remedy("pls", " --exchange-fraction 0.1", context)
    shared = (partial_local,) if "shared_shuffle" in context.codes and context.ranks > 1 else ()
    tensorflow = _select_remedies(context, tensorflow=cache)
    if context.best is not None and context.best.lever == "exchanged":
        title = "Let each rank keep its part of the data and exchange a tenth of it"
        return Advice(title, (*shared, copy, *tensorflow, _make_scheduled_remedy(context)))
    title = f"Keep the data{what} in memory after the first read"
    both = (copy, *tensorflow, *shared, _make_scheduled_remedy(context))
    return Advice(title, both, call=KEEP_FILES)


def _suggest_larger_requests(context: Context) -> Advice:
    tensorflow = Remedy(
        "TensorFlow",
        f"dataset = tf.data.TFRecordDataset(files, buffer_size={_READ_BUFFER})",
        "Reads 8 MiB per request instead of 256 KiB.",
    )
    # A small buffer alone is one argument; else the samples have to be laid out anew.
    if context.codes == {"tfrecord_default_buffer"}:
        return Advice("Read TFRecord files in requests of 8 MiB", (tensorflow,))
    buffer = (tensorflow,) if "tfrecord_default_buffer" in context.codes else ()
    repack = Remedy(
        "HDF5",
        "h5repack -l DATASET:CHUNK=1x128x128 data.h5 repacked.h5  # one sample per chunk",
        "A sample is then one request.",
    )
    chunks = (repack,) if "hdf5_chunk_misfit" in context.codes else ()
    return Advice(
        "Read more per request: whole samples, neighbours together",
        (*buffer, *chunks, _make_scheduled_remedy(context)),
    )


def _suggest_windows(_context: Context) -> Advice:
    growing = Remedy(
        "Python",
        "for row in rows:  # gives out a sample from the first on\n"
        "    held.append(row)\n"
        "    if len(held) >= size or random.random() < len(held) / size:\n"
        "        k = random.randrange(len(held))\n"
        "        held[k], held[-1] = held[-1], held[k]\n"
        "        yield held.pop()",
        "The buffer fills while training goes on; the first samples are shuffled less.",
    )
    return Advice("Make the shuffle buffer smaller, or fill it a little at a time", (growing,))


def _suggest_single_scan(_context: Context) -> Advice:
    shapes = Remedy(
        "HDF5",
        "need = dataset.size * dataset.dtype.itemsize  # of an h5py data set, without reading it",
        "Shape and type stand in the header.",
    )
    return Advice("Read the data once before training, not once to measure them", (shapes,))


def _suggest_chunks(_context: Context) -> Advice:
    repack = Remedy(
        "HDF5",
        "h5repack -l DATASET:CHUNK=1x128x128 data.h5 repacked.h5  # one sample per chunk",
        "A sample is then one request, and nothing else is unpacked for it.",
    )
    return Advice("Rewrite the data in chunks of one sample", (repack,))


def _suggest_reading_less(_context: Context) -> Advice:
    mapped = Remedy(
        "NumPy",
        'volume = np.load(path, mmap_mode="r")  # raw bytes: np.memmap(path, dtype, shape=...)\n'
        "sample = np.array(volume[z : z + DEPTH, y : y + CROP, x : x + CROP])",
        "Only the pages that hold the part are read.",
    )
    once = Remedy(
        "Once, before training",
        "for i, sample in enumerate(dataset):  # what every epoch repeats, without random crops\n"
        '    np.save(f"{FOLDER}/{i}.npy", sample.astype(np.uint8))',
        "Samples are stored as they are used: resized, in the smallest type, computed.",
    )
    return Advice("Read only the part of the data that batches hold", (mapped, once))


def _suggest_fewer_files(context: Context) -> Advice:
    once = Remedy(
        "Open each file once per worker",
        "def __getitem__(self, i):\n"
        "    if self.file is None:  # in the worker, at the first sample\n"
        '        self.file = h5py.File(self.path, "r")\n'
        "    return self.file[NAME][i]",
        "The file stays open between samples.",
    )
    pack = _make_loader_remedy("webdataset", "", context)
    remember = Remedy(
        "Read small files once",
        "@functools.cache\ndef metadata(path):\n    return json.loads(Path(path).read_text())",
        "What does not change is kept in memory after the first read.",
    )
    # Files that are no samples need no packing.
    if context.codes <= {"file_read_again", "empty_reads"}:
        return Advice("Read small files once and keep what they hold", (remember,))
    if "tiny_files" in context.codes or any(f.advice == PACK for f in context.findings):
        return Advice("Pack the samples into larger files", (pack,))
    kept = KEEP_OPEN if "reopened" in context.codes else ""
    return Advice("Open files once and keep them open", (once, pack), call=kept)


def _suggest_divided_reading(context: Context) -> Advice:
    sampler = Remedy(
        "PyTorch",
        "sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)\n"
        "loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)",
        "Every rank reads an equal part of the samples, and no other.",
    )
    tensorflow = Remedy(
        "TensorFlow", "dataset = dataset.shard(world_size, rank)", "Each rank reads its shard."
    )
    both = _select_remedies(context, sampler, tensorflow)
    # The title says what the findings have in common, of the narrowest finding first.
    if "ranks_read_the_same" in context.codes:
        spatial = _make_loader_remedy("spatial", "", context)
        return Advice("Let each rank read only its part of the data", (*both, spatial))
    if context.codes == {"worker_imbalance"}:
        return Advice("Give all workers batches of equal size")
    if "one_reader" in context.codes:
        return Advice("Let every rank read its own part of the data", both)
    if context.codes == {"waits_for_other_ranks"}:
        return Advice("Give every rank input at the same rate", both)
    if not context.run.trains:
        return Advice("Divide the I/O evenly over the ranks")
    return Advice("Divide the reading evenly over the ranks", both)


def _suggest_unblocking(context: Context) -> Advice:
    title = "Find what fetches wait for: a lock, a service, a timer, a child process"
    if context.best is None:
        return Advice(title)
    # A worker that waits uses no core, so several can wait at once.
    torch = _make_torch_prefetch(
        context, num_workers=str(context.workers), persistent_workers="True"
    )
    asked = f"Ask ahead with {plural(context.workers, 'worker')}"
    if context.splits_first:
        asked += _THAT_SPLIT
    both = _select_remedies(context, torch, change=AHEAD)
    title = f"{asked}, and find what fetches wait for"
    return Advice(title, both, _get_worker_arguments(context))


def _suggest_more_cores(context: Context) -> Advice:
    fewer = Remedy(
        "Shell", "OMP_NUM_THREADS=1 python train.py", "Libraries start no threads of their own."
    )
    cores, workers = context.run.trace.cores, context.run.workers_of_rank
    title = "Give the job more cores, or start fewer workers and threads"
    if not cores or context.ranks * workers <= cores or context.run.written_in:
        return Advice(title, (fewer,))
    # The cores left beside the training process of each rank, at least one worker.
    few = max(int(cores // context.ranks) - 1, 1)
    of = plural(round(cores), "core")
    title = f"Start {plural(few, 'worker')} instead of {workers}: there are {of}, or ask for more"
    return Advice(title, (fewer,), {"num_workers": str(few)} if few < workers else {})


def _suggest_queue(context: Context) -> Advice:
    queue = Remedy(
        "PyTorch",
        "loader = DataLoader(dataset, batch_size=batch_size, num_workers=num_workers,\n"
        "                    prefetch_factor=8)",
        "A longer queue of batches evens out what is rare.",
    )
    title = "Find out why individual reads are slow, and read further ahead"
    further = {"prefetch_factor": "8"} if context.run.has_workers else {}
    return Advice(
        title, _select_remedies(context, queue), {} if context.run.written_in else further
    )


def _suggest_async_checkpoints(context: Context) -> Advice:
    save = Remedy(
        "PyTorch",
        "future = torch.distributed.checkpoint.async_save(state, checkpoint_id=path)",
        "Copies the state to host memory, and writes it while training goes on.",
    )
    stalls = [f.evidence.get("every_s") for f in context.findings if f.code == "checkpoint_stall"]
    # In the background a save would wait for the one before: only fewer saves help.
    if stalls and stalls[0]:
        every_s = f"{stalls[0]:g}"
        title = f"Save every {every_s} s at most: a save takes longer than the steps between two"
        return Advice(title, _select_remedies(context, save), {"every_s": every_s}, SAVE_SELDOM)
    if stalls:
        both = _select_remedies(context, save)
        return Advice("Write checkpoints in the background", both, call=SAVE_BEHIND)
    if "small_writes" in context.codes:
        return Advice("Write checkpoints in blocks of a few MiB")
    return Advice("Check what the job writes, then write less of it or less often")


def _suggest_buffered_io(_context: Context) -> Advice:
    larger = Remedy(
        "Python",
        "with open(path, mode, buffering=4 << 20) as file:\n    ...",
        "4 MiB per call to the file system.",
    )
    return Advice("Read and write large files with a larger buffer", (larger,))


def _suggest_printing_less(_context: Context) -> Advice:
    bar = Remedy(
        "Python",
        "for batch in tqdm(loader, mininterval=10, disable=rank != 0):\n    ...",
        "One rank prints, at most every ten seconds. Keras: model.fit(..., verbose=2).",
    )
    return Advice("Print less often, and from one rank", (bar,))


def _suggest_fewer_imports(_context: Context) -> Advice:
    packed = Remedy(
        "Shell",
        "conda-pack -o environment.tar.gz && tar xzf environment.tar.gz -C /tmp/environment",
        "Imports then come from the local disk.",
    )
    return Advice("Import from a local or packed environment", (packed,))


def _suggest_for_storage_benchmark(context: Context) -> Advice:
    if "benchmark_wait" in context.codes:
        return Advice("Shorten what the accelerators of the benchmark wait for")
    return Advice("Measure again, within the rules of the benchmark")


def _make_glob_of_unknown(context: Context) -> str:
    """A glob that matches the file of unknown use that moved most, by its suffix or its name."""
    rows = [row for row in context.run.results.files.rows if row.kind == OF_NO_KIND]
    if not rows:
        return "GLOB"
    most = PurePosixPath(max(rows, key=lambda row: row.bytes_read + row.bytes_written).path)
    return f"*{most.suffix or most.name}"


def _suggest_recording(context: Context) -> Advice:
    own = get_own_command(context.run.trace)
    line = own.below_secrets(f"vanidl record -o RUN -- {own.text}")
    again = Remedy("Record again", line, "It sets the tracer's limits.")
    if context.codes == {"unclassified_io"}:
        kind = Remedy(
            "Name them",
            f"vanidl report RUN --kind {shlex.quote(f'{_make_glob_of_unknown(context)}=dataset')}",
            "Findings about reads and checkpoints look at files of those kinds.",
        )
        return Advice("Say what the files of unknown use are", (kind,))
    steps = context.run.results.steps
    # Beside a tracer of all calls only what no call reads is missing.
    if context.run.by_calls and context.codes - {"cores_taken"} == {"reads_not_seen"}:
        return Advice("Read mapped files with read or pread, to have their reads recorded")
    if context.codes == {"cores_taken"}:
        return Advice("Record again while nothing else runs on the node")
    if context.codes == {"clock_unverified"}:
        if steps is None and not context.run.trace.profiles:
            return Advice("Set the clocks of all hosts, and record again")
        # Darshan takes the start of a forked worker late; workers that start once, less often.
        if steps is not None and steps.clock.workers_least:
            exact = own.below_secrets(f"vanidl record --tracer dftracer -o RUN -- {own.text}")
            other = Remedy("Record again", exact, "Its times do not depend on a worker's start.")
            return Advice("Record with workers that start once, or with DFTracer", (other,))
        both = replace(again, explanation="Profiler and I/O are then of one run, on one clock.")
        return Advice("Record profiler and I/O in one run", (both,))
    if context.run.by_calls and own.text != UNKNOWN:
        # The tracer that it was recorded with: the same command would lose the same.
        return Advice("Let every process end by itself, and keep all that the recorder wrote")
    return Advice("Record what the log lacks", (again,))


def _suggest_after_failure(_context: Context) -> Advice:
    return Advice("Mend what ended the program, and record again")


def _suggest_smaller_batches(_context: Context) -> Advice:
    smaller = Remedy(
        "PyTorch",
        "sample = torch.from_numpy(pixels)  # uint8, in the data set\n"
        "images = images.to(device).float() / 255  # in the training loop",
        "A quarter of the bytes of float32 go from the workers to the training process.",
    )
    return Advice("Hand over less from the workers: smaller types, only what is used", (smaller,))


def _suggest_for_storage_limit(context: Context) -> Advice:
    copy = Remedy(
        "Shell",
        "cp -r DATA /dev/shm/data  # or a local disk; what does not fit, as smaller types",
        "Later reads do not come from the storage that readers wait for.",
    )
    if "storage_saturated" not in context.codes:
        many = number(context.run.readers_at_once)
        return Advice(f"Read fewer bytes, or from memory: {many} readers wait at once", (copy,))
    return Advice("Read fewer bytes: the storage is at its limit", (copy,))


def _suggest_job_requests(_context: Context) -> Advice:
    hints = Remedy(
        "MPI-IO",
        "export ROMIO_HINTS=$PWD/hints\n"
        "printf '%s\\n' 'romio_cb_write enable' 'romio_cb_read enable' > hints",
        "Collective calls then make requests of cb_buffer_size, 16 MiB.",
    )
    return Advice("Make fewer and larger requests", (hints,))


def _suggest_job_alignment(_context: Context) -> Advice:
    return Advice("Align requests to the file system's unit")


def _suggest_job_metadata(_context: Context) -> Advice:
    return Advice("Open fewer files, and each of them once")


def _suggest_collective_io(context: Context) -> Advice:
    if "job_sieving" not in context.codes:
        return Advice("Use collective MPI-IO calls")
    hints = Remedy(
        "MPI-IO",
        "export ROMIO_HINTS=$PWD/hints\nprintf '%s\\n' 'romio_ds_write disable' > hints",
        "Pieces are written as they are, without reading what lies between.",
    )
    return Advice("Write collectively, or without data sieving", (hints,))


def _suggest_reading_once(_context: Context) -> Advice:
    return Advice("Read once what several ranks need, and broadcast it")


def _suggest_hiding_io(_context: Context) -> Advice:
    return Advice("Start MPI-IO early and wait for it late")


def _suggest_for_stragglers(_context: Context) -> Advice:
    return Advice("Give ranks equal parts of the shared files")


def _suggest_more_stripes(_context: Context) -> Advice:
    stripe = Remedy("Shell", "lfs setstripe -c 8 -S 4M FOLDER", "New files there have 8 stripes.")
    return Advice("Spread shared files over more Lustre targets", (stripe,))


def _suggest_for_loop_work(context: Context) -> Advice:
    part = context.findings[0].evidence.get("part")
    if part == "prepare":
        move = Remedy(
            "PyTorch",
            "loader = DataLoader(dataset, batch_size=batch_size, num_workers=2,\n"
            "                    collate_fn=prepare)  # what the loop did to each batch",
            "Workers prepare batches while the step computes.",
        )
        # Where there are none, as many as have cores of their own, two at most.
        few = str(min(context.run.computing_workers or 1, FEW_WORKERS))
        kept = {"persistent_workers": "True"} if context.run.fetched_epochs > 1 else {}
        title = "Prepare batches in the workers, not in the training loop"
        return Advice(title, (move,), {"num_workers": few, **kept}, PREPARE)
    rarely = Remedy(
        "Python",
        "if step % 50 == 0:  # and once at the end\n    report(metrics)",
        "What is shown every so many steps is computed as often.",
    )
    return Advice("Do less between steps: metrics and the like every so many", (rarely,))


def _suggest_for_services(context: Context) -> Advice:
    if context.findings[0].evidence.get("sends_objects"):
        upload = Remedy(
            "Python",
            "uploads = concurrent.futures.ThreadPoolExecutor(1)\n"
            "sent = uploads.submit(upload, path)  # in the training loop, where it uploaded\n"
            "uploads.shutdown()  # at the end: waits for the last one",
            "The loop goes on while the file is sent.",
        )
        return Advice("Upload in the background, not in the training loop", (upload,))
    queue = Remedy(
        "Python",
        "def send():\n"
        "    while (row := rows.get()) is not None:\n"
        "        session.post(url, json=row)\n\n"
        "rows = queue.Queue()\n"
        "threading.Thread(target=send, daemon=True).start()\n"
        "rows.put(row)  # in the training loop, where it waited for the answer",
        "The loop goes on; a thread waits.",
    )
    # The patch of the program moves requests only.
    asks = context.findings[0].cause == NETWORK
    title = "Let a thread wait for what the training loop waits for"
    return Advice(title, (queue,), call=SEND_BEHIND if asks else "")


def _suggest_for_background_work(context: Context) -> Advice:
    if context.run.account.waits_known:
        return Advice("Move background work out of the training process")
    # Where no waits are known, the queue may be where batches come from.
    own = get_own_command(context.run.trace)
    line = own.below_secrets(f"vanidl record --wait queue:Queue.get -o RUN -- {own.text}")
    batches = "If the loop takes its batches there: these waits are of input then."
    return Advice(
        "Move background work to another process, or name the queue of batches",
        (Remedy("Record again", line, batches),),
    )


def _suggest_fewer_syncs(_context: Context) -> Advice:
    return Advice("Sync files once, not with each step", call=SYNC_SELDOM)


def _suggest_hiding_copies(context: Context) -> Advice:
    pinned = Remedy(
        "PyTorch",
        "loader = DataLoader(..., pin_memory=True)\n"
        "for batch, target in loader:\n"
        "    batch = batch.to(device, non_blocking=True)\n"
        "    target = target.to(device, non_blocking=True)",
        "The copy runs beside kernels that are under way; the host goes on at once.",
    )
    pinning = {} if context.run.written_in else {"pin_memory": "True"}
    return Advice("Copy batches from pinned memory, beside the kernels", (pinned,), pinning)


def _suggest_less_logging(_context: Context) -> Advice:
    buffered = Remedy(
        "Python",
        "handler = logging.handlers.MemoryHandler(10_000, target=file_handler)",
        "Lines are written many at a time.",
    )
    return Advice("Log less often, and through a buffer", (buffered,))


def _suggest_for_validation(context: Context) -> Advice:
    if "starting_s" in context.findings[0].evidence:
        kept = Remedy(
            "PyTorch",
            "validation = DataLoader(held, batch_size=batch_size, num_workers=2,\n"
            "                        persistent_workers=True)  # once, before the training loop",
            "Its workers stay from one validation to the next.",
        )
        return Advice("Keep the loader and the workers of the validation", (kept,))
    return Advice("Validate less often, on less, or with workers that are kept")


_ADVICE: dict[str, Callable[[Context], Advice]] = {
    "failed": _suggest_after_failure,
    "storage_limit": _suggest_for_storage_limit,
    "job_requests": _suggest_job_requests,
    "job_alignment": _suggest_job_alignment,
    "job_metadata": _suggest_job_metadata,
    "collective_io": _suggest_collective_io,
    "read_once": _suggest_reading_once,
    "hide_io": _suggest_hiding_io,
    "stragglers": _suggest_for_stragglers,
    "stripes": _suggest_more_stripes,
    "hand_over": _suggest_smaller_batches,
    "loop_work": _suggest_for_loop_work,
    "services": _suggest_for_services,
    "background_work": _suggest_for_background_work,
    "syncs": _suggest_fewer_syncs,
    "device_copies": _suggest_hiding_copies,
    "logging": _suggest_less_logging,
    "validation": _suggest_for_validation,
    "warm_start": _suggest_warm_start,
    "read_ahead": _suggest_read_ahead,
    "decode": _suggest_decoding,
    "unblock": _suggest_unblocking,
    "more_cores": _suggest_more_cores,
    "keep_data": _suggest_keeping_data,
    "larger_requests": _suggest_larger_requests,
    "chunks": _suggest_chunks,
    "read_less": _suggest_reading_less,
    "windows": _suggest_windows,
    "scan_once": _suggest_single_scan,
    "fewer_files": _suggest_fewer_files,
    "divide_reading": _suggest_divided_reading,
    "rare_stalls": _suggest_queue,
    "checkpoints": _suggest_async_checkpoints,
    "buffered_io": _suggest_buffered_io,
    "print_less": _suggest_printing_less,
    "imports": _suggest_fewer_imports,
    "storage_benchmark": _suggest_for_storage_benchmark,
    "record_more": _suggest_recording,
}
