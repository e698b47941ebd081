"""Small trainings with one planted cause each, which a switch takes away, and healthy ones.

    python planted.py make DATA                  # the data that they read
    python planted.py NAME [--off] --data DATA   # one training; `--off`: without the cause

Each prints one JSON line by its own timers: seconds of its loop, and steps. A training is a data
set, a loader and what its loop does beside a step; the programs differ in nothing else.
"""

from __future__ import annotations

import argparse
import csv
import http.server
import io
import json
import math
import os
import socket
import threading
import time
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

torch.set_num_threads(1)
WIDTH, STEPS = 512, 100
SAMPLES, NBYTES = 400, 1 << 16
SERVING: list[int] = []
Step = Callable[[int, Any], None]


# --- A training ---------------------------------------------------------------------------------


def train(
    loader: Any,
    work: int = 96,
    epochs: int = 1,
    before: Step | None = None,
    after: Step | None = None,
    steps: int = 10**9,
) -> int:
    """Trains a small network on what a loader hands over; `work` rows make a step long."""
    net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)
    done = 0
    for _ in range(epochs):
        for batch in loader:
            if before is not None:
                before(done, batch)
            rows = batch[0] if isinstance(batch, (tuple, list)) else batch
            rows = rows.reshape(-1)[: 4 * WIDTH].reshape(-1, WIDTH).float()
            rows = rows.repeat(max(work // max(len(rows), 1), 1), 1)
            loss = net(rows).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if after is not None:
                after(done, (net, optimizer, loss))
            if done >= steps:
                return done
    return done


def sample_of(raw: bytes) -> torch.Tensor:
    """A sample as its bytes say it."""
    return torch.from_numpy(np.frombuffer(raw, np.uint8)[: 4 * WIDTH].astype(np.float32) / 255)


class Files(Dataset):  # type: ignore[type-arg]
    """A sample a file, read whole; `decode` works on its bytes."""

    def __init__(self, folder: str, count: int = SAMPLES, decode: Any = None) -> None:
        self.folder, self.count, self.decode = folder, count, decode

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> torch.Tensor:
        with open(f"{self.folder}/{i % SAMPLES}.bin", "rb", buffering=0) as file:
            raw = file.read()
        if self.decode is not None:
            self.decode(i, raw)
        return sample_of(raw)


class Made(Dataset):  # type: ignore[type-arg]
    """Samples that cost nothing but what `cost` does."""

    def __init__(self, count: int = SAMPLES, cost: Any = None, shape: int = 4 * WIDTH) -> None:
        self.count, self.cost, self.shape = count, cost, shape

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> torch.Tensor:
        if self.cost is not None:
            self.cost(i)
        return torch.full((self.shape,), float(i % 7))


def in_python(milliseconds: float) -> None:
    """Keeps the interpreter busy: the work of a transform written in Python."""
    total, end = 0.0, time.perf_counter() + milliseconds / 1e3
    while time.perf_counter() < end:
        for k in range(200):
            total += math.sqrt(k)


PACKED = zlib.compress(np.random.default_rng(1).integers(0, 9, 300_000, np.uint8).tobytes(), 1)


def in_native(rounds: int = 1) -> None:
    """Inflates what a decoder would: some 3 ms each, without the interpreter's lock."""
    for _ in range(rounds):
        zlib.decompress(PACKED)


def each(function: Any, *arguments: Any) -> Any:
    """The cost of a sample, whichever it is."""
    return _Each(function, arguments)


class _Each:
    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments

    def __call__(self, *_: Any) -> None:
        self.function(*self.arguments)


# --- Storage ------------------------------------------------------------------------------------


def slow_storage(on: bool, data: str) -> int:
    """Each sample waits for a slow file system, in the training process."""
    return train(DataLoader(Files(data), batch_size=4))


def slow_metadata(on: bool, data: str) -> int:
    """Each sample looks for its file among others before it opens it."""

    class Looking(Files):
        def __getitem__(self, i: int) -> torch.Tensor:
            if on:
                for k in range(6):
                    os.path.exists(f"{self.folder}/{i % SAMPLES}.v{k}.json")
            return super().__getitem__(i)

    return train(DataLoader(Looking(data), batch_size=4))


def saturated_storage(on: bool, data: str) -> int:
    """Four workers already take all that the file system delivers."""
    return train(DataLoader(Files(data, 640), batch_size=4, num_workers=4), work=16)


def cold_then_warm(on: bool, data: str) -> int:
    """The first epoch reads, the others are served from memory."""
    return train(DataLoader(Files(data, 160), batch_size=4), epochs=3)


def too_few_workers(on: bool, data: str) -> int:
    """One worker's reads take longer than a step."""
    workers = 1 if on else 6
    return train(DataLoader(Files(data), batch_size=4, num_workers=workers))


# --- Cores --------------------------------------------------------------------------------------


def too_many_workers(on: bool, data: str) -> int:
    """Twelve workers decode on two cores, beside the training."""
    count = 12 if on else 1
    set_ = Made(SAMPLES, each(in_native))
    return train(DataLoader(set_, batch_size=4, num_workers=count, prefetch_factor=2), work=96)


def one_core(on: bool, data: str) -> int:
    """Workers and training share one core."""
    if on:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    return train(DataLoader(Made(SAMPLES, each(in_native)), batch_size=4, num_workers=2))


def gil_transform(on: bool, data: str) -> int:
    """A transform in Python runs in a thread of the training process, against its lock."""
    made: list[torch.Tensor | None] = []
    ready = threading.Semaphore(0)

    def ahead() -> None:
        for _ in range(STEPS):
            if on:
                in_python(10)
            made.append(torch.ones(4 * WIDTH))
            ready.release()

    class Ahead(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[torch.Tensor]:
            threading.Thread(target=ahead, daemon=True).start()
            for k in range(STEPS):
                ready.acquire()
                yield made[k]  # type: ignore[misc]

    return train(DataLoader(Ahead(), batch_size=None))


def native_decode(on: bool, data: str) -> int:
    """Samples are inflated in the training process."""
    return train(DataLoader(Files(data, decode=each(in_native) if on else None), batch_size=4))


def python_transform(on: bool, data: str) -> int:
    """A transform in Python takes longer than the step, in one worker."""
    cost = each(in_python, 4) if on else None
    return train(DataLoader(Made(SAMPLES, cost), batch_size=4, num_workers=1))


def slow_sample(on: bool, data: str) -> int:
    """One sample in a hundred takes thirty times as long to decode."""

    class Uneven(Made):
        def __getitem__(self, i: int) -> torch.Tensor:
            if on and i % 100 == 50:
                in_native(50)
            return super().__getitem__(i)

    return train(DataLoader(Uneven(1000), batch_size=4, num_workers=1), work=16)


# --- Workers ------------------------------------------------------------------------------------


def serial_start(on: bool, data: str) -> int:
    """Eight workers are spawned one after the other, each with a large list of samples."""
    set_ = Made(200)
    set_.index = [(f"/data/{i}.bin", i) for i in range(200_000)] if on else []  # type: ignore[attr-defined]
    context = "spawn" if on else "fork"
    workers = 4 if on else 1
    return train(
        DataLoader(set_, batch_size=4, num_workers=workers, multiprocessing_context=context)
    )


def workers_anew(on: bool, data: str) -> int:
    """Workers are started for each of many short epochs."""
    loader = DataLoader(Made(32), batch_size=4, num_workers=4, persistent_workers=not on)
    return train(loader, epochs=16)


def delivery(on: bool, data: str) -> int:
    """Workers hand over batches of 128 MiB that the step needs a part of."""
    shape = (1 << 21) if on else 4 * WIDTH
    return train(DataLoader(Made(320, shape=shape), batch_size=8, num_workers=2), work=16)


def worker_lock(on: bool, data: str) -> int:
    """Workers take turns at a lock that each holds while it waits for a licence."""
    import multiprocessing

    lock = multiprocessing.Lock()

    def locked(_: int) -> None:
        with lock:
            time.sleep(0.008)

    cost = locked if on else None
    return train(DataLoader(Made(SAMPLES, cost), batch_size=4, num_workers=4))


# --- Ranks --------------------------------------------------------------------------------------


def slow_rank(on: bool, data: str) -> int:
    """One of two ranks decodes more than the other."""
    torch.distributed.init_process_group("gloo")
    slow = torch.distributed.get_rank() == 1 and on
    mean = torch.zeros(1)

    def meet(_: int, __: Any) -> None:
        torch.distributed.all_reduce(mean)

    cost = each(in_native) if slow else None
    return train(DataLoader(Made(240, cost), batch_size=4), work=16, after=meet)


def one_reader(on: bool, data: str) -> int:
    """The first of two ranks reads for both, and sends the other its samples."""
    torch.distributed.init_process_group("gloo")
    first = torch.distributed.get_rank() == 0
    part = torch.zeros(8 * WIDTH)

    def share(_: int, __: Any) -> None:
        torch.distributed.broadcast(part, 0)

    if not on:
        return train(DataLoader(Files(data, 240), batch_size=4), work=16, after=share)
    set_: Any = Files(data, 480) if first else Made(480)
    return train(DataLoader(set_, batch_size=8), work=16, after=share)


# --- Saves --------------------------------------------------------------------------------------


def checkpoint(on: bool, data: str) -> int:
    """The loop stands while 200 MB are saved, every 25 steps."""
    state = {"weights": torch.rand(50_000_000)}

    def save(done: int, _: Any) -> None:
        if on and done % 25 == 0:
            torch.save(state, f"{data}/out/model.pt")

    return train(DataLoader(Made(SAMPLES), batch_size=4), after=save)


def background_save(on: bool, data: str) -> int:
    """A thread that saves in the background takes the interpreter and the core from the steps."""
    rows = [[float(k), str(k)] for k in range(60_000)]

    def save() -> None:
        text = io.StringIO()
        csv.writer(text).writerows(rows * 4)
        Path(f"{data}/out/state.csv").write_text(text.getvalue(), encoding="utf-8")

    def start(done: int, _: Any) -> None:
        if on and done % 12 == 0:
            threading.Thread(target=save).start()

    return train(DataLoader(Made(SAMPLES), batch_size=4), after=start)


def fsync(on: bool, data: str) -> int:
    """Each step waits until a line of its journal is on the disk."""
    with open(f"{data}/out/journal", "w", encoding="utf-8") as journal:

        def note(done: int, _: Any) -> None:
            journal.write(f"{done}\n")
            journal.flush()
            if on:
                os.fsync(journal.fileno())

        return train(DataLoader(Made(SAMPLES), batch_size=4), after=note)


def log_each_step(on: bool, data: str) -> int:
    """Each step writes all its gradients to a log."""
    with open(f"{data}/out/log.txt", "w", buffering=1, encoding="utf-8") as log:

        def note(done: int, state: Any) -> None:
            if on:
                for row in state[0][0].weight.grad[:24].tolist():
                    log.write(f"{done} " + " ".join(f"{v:.6f}" for v in row) + "\n")

        return train(DataLoader(Made(SAMPLES), batch_size=4), after=note)


# --- The training loop --------------------------------------------------------------------------


def validation(on: bool, data: str) -> int:
    """The model is evaluated on all data every thirty steps."""
    held = DataLoader(Made(200, each(in_python, 1)), batch_size=4)

    def evaluate(done: int, state: Any) -> None:
        if on and done % 30 == 0:
            net = state[0].eval()
            with torch.no_grad():
                for rows in held:
                    net(rows[:, :WIDTH])
            net.train()

    return train(DataLoader(Made(SAMPLES), batch_size=4), after=evaluate)


def augment_in_loop(on: bool, data: str) -> int:
    """Batches are augmented in the training loop, before the model is called."""

    def augment(_: int, __: Any) -> None:
        if on:
            in_python(10)

    return train(DataLoader(Made(SAMPLES), batch_size=4), before=augment)


def python_metrics(on: bool, data: str) -> int:
    """Metrics are computed in Python after each step."""

    def measure(_: int, __: Any) -> None:
        if on:
            in_python(10)

    return train(DataLoader(Made(SAMPLES), batch_size=4), after=measure)


# --- Formats ------------------------------------------------------------------------------------


def parquet_decode(on: bool, data: str) -> int:
    """Rows are decoded from Parquet on a RAM disk, a whole row group for each batch."""
    import pyarrow.parquet

    class Groups(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[torch.Tensor]:
            name = "rows.parquet" if on else "plain.parquet"
            for k in range(STEPS):
                table = pyarrow.parquet.ParquetFile(f"{data}/{name}").read_row_group(
                    k % 4, use_threads=False
                )
                yield sample_of(table.column(0)[0].as_py())

    return train(DataLoader(Groups(), batch_size=None))


def h5_chunk(on: bool, data: str) -> int:
    """Each sample unpacks a chunk of 64."""
    import h5py

    class Rows(Dataset):  # type: ignore[type-arg]
        file: Any = None

        def __len__(self) -> int:
            return 480

        def __getitem__(self, i: int) -> torch.Tensor:
            if self.file is None:
                self.file = h5py.File(f"{data}/{'wide' if on else 'narrow'}.h5", rdcc_nbytes=0)
            return torch.from_numpy(self.file["x"][i * 97 % 2048].astype(np.float32))

    return train(DataLoader(Rows(), batch_size=4))


def reopened_archive(on: bool, data: str) -> int:
    """An archive's directory is read anew for each sample."""
    import zipfile

    class Members(Dataset):  # type: ignore[type-arg]
        held: Any = None

        def __len__(self) -> int:
            return 320

        def __getitem__(self, i: int) -> torch.Tensor:
            if on or self.held is None:
                self.held = zipfile.ZipFile(f"{data}/members.zip")
            return sample_of(self.held.read(f"{i * 9 % 4000}.bin") * 3)

    return train(DataLoader(Members(), batch_size=4))


def shuffle_window(on: bool, data: str) -> int:
    """Every forty batches the window of a shuffle is filled anew, in one go."""

    class Windows(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[torch.Tensor]:
            for k in range(STEPS):
                if on and k % 40 == 0:
                    for i in range(160):
                        Files(data)[i]
                yield torch.ones(4 * WIDTH)

    return train(DataLoader(Windows(), batch_size=None, num_workers=1, prefetch_factor=2))


# --- Services -----------------------------------------------------------------------------------


def serve(delay_s: float) -> int:
    """A service on this machine that takes its time to answer; its port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            time.sleep(delay_s)
            self.send_response(200)
            self.send_header("Content-Length", str(4 * WIDTH))
            self.end_headers()
            self.wfile.write(b"x" * (4 * WIDTH))

        def log_message(self, *_: Any) -> None:
            return

    port = socket.create_server(("127.0.0.1", 0))
    number: int = port.getsockname()[1]
    port.close()
    SERVING.append(os.fork())
    if SERVING[0] == 0:
        http.server.ThreadingHTTPServer(("127.0.0.1", number), Answer).serve_forever()
    time.sleep(0.5)
    return number


def object_reads(on: bool, data: str) -> int:
    """Each sample is a small object of a store, asked for by HTTP."""
    port = int(os.environ["SERVICE_PORT"])

    def ask(i: int) -> None:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/bucket/{i}.bin") as answer:
            answer.read()

    return train(DataLoader(Made(SAMPLES, ask if on else None), batch_size=4))


def tracking_service(on: bool, data: str) -> int:
    """Each step reports to a service and waits for its answer."""
    port = int(os.environ["SERVICE_PORT"])

    def report(done: int, _: Any) -> None:
        if on:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/step/{done}") as answer:
                answer.read()

    return train(DataLoader(Made(SAMPLES), batch_size=4), after=report)


def sleeping_service(on: bool, data: str) -> int:
    """A loader polls for each batch, and sleeps between two looks."""

    def poll(_: int) -> None:
        time.sleep(0.006)

    return train(DataLoader(Made(SAMPLES, poll if on else None), batch_size=4))


# --- Healthy ------------------------------------------------------------------------------------


def in_memory(on: bool, data: str) -> int:
    """Tensors in memory, steps of 70 us."""
    rows = TensorDataset(torch.rand(16_000, 16))
    net = nn.Linear(16, 1)
    done = 0
    for (batch,) in DataLoader(rows, batch_size=4):
        net(batch)
        done += 1
    return done


def workers_keep_up(on: bool, data: str) -> int:
    """Two workers read local files and are ahead."""
    return train(DataLoader(Files(data), batch_size=4, num_workers=2))


def local_files(on: bool, data: str) -> int:
    """Files in the page cache, read in the training process."""
    return train(DataLoader(Files(data), batch_size=4), work=96)


def held_h5(on: bool, data: str) -> int:
    """An HDF5 file, opened once an epoch, a chunk a sample."""
    return h5_chunk(False, data)


def stream_with_workers(on: bool, data: str) -> int:
    """Shards that workers have divided between them."""

    class Shards(IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[torch.Tensor]:
            info = torch.utils.data.get_worker_info()
            for i in range(info.id, SAMPLES, info.num_workers):
                yield Files(data)[i]

    return train(DataLoader(Shards(), batch_size=4, num_workers=2))


def rare_checkpoint(on: bool, data: str) -> int:
    """A small model is saved at the end."""
    state: dict[str, Any] = {}

    def save(done: int, held: Any) -> None:
        state["model"] = held[0]
        if done == STEPS:
            torch.save(held[0].state_dict(), f"{data}/out/small.pt")

    return train(DataLoader(Made(SAMPLES), batch_size=4), after=save)


def few_prints(on: bool, data: str) -> int:
    """A line every twenty steps."""

    def say(done: int, _: Any) -> None:
        if done % 20 == 0:
            print("step", done, flush=True)

    return train(DataLoader(Made(SAMPLES), batch_size=4), after=say)


def short_validation(on: bool, data: str) -> int:
    """A few batches are evaluated at the end of each epoch."""

    def evaluate(done: int, held: Any) -> None:
        if done % STEPS == 0:
            net = held[0].eval()
            with torch.no_grad():
                for rows in DataLoader(Made(16), batch_size=4):
                    net(rows[:, :WIDTH])
            net.train()

    return train(DataLoader(Made(SAMPLES), batch_size=4), epochs=2, after=evaluate)


def even_ranks(on: bool, data: str) -> int:
    """Two ranks that do the same."""
    return slow_rank(False, data)


def computing(on: bool, data: str) -> int:
    """Steps that compute, on little data."""
    return train(DataLoader(Files(data, 200), batch_size=4), work=384)


# --- Lists --------------------------------------------------------------------------------------

CAUSES = (
    slow_storage, slow_metadata, saturated_storage, cold_then_warm, too_few_workers,
    too_many_workers, one_core, gil_transform, native_decode, python_transform, slow_sample,
    serial_start, workers_anew, delivery, worker_lock, slow_rank, one_reader, checkpoint,
    background_save, fsync, log_each_step, validation, augment_in_loop, python_metrics,
    parquet_decode, h5_chunk, reopened_archive, shuffle_window, object_reads, tracking_service,
    sleeping_service,
)  # fmt: skip
HEALTHY = (
    in_memory, workers_keep_up, local_files, held_h5, stream_with_workers, rare_checkpoint,
    few_prints, short_validation, even_ranks, computing,
)  # fmt: skip


def make(data: Path) -> None:
    """All files that the programs read, in one folder."""
    import zipfile

    import h5py
    import pyarrow
    import pyarrow.parquet

    random = np.random.default_rng(0)
    (data / "out").mkdir(parents=True, exist_ok=True)
    for i in range(SAMPLES):
        (data / f"{i}.bin").write_bytes(random.bytes(NBYTES))
    with zipfile.ZipFile(data / "members.zip", "w") as archive:
        for i in range(4000):
            archive.writestr(f"{i}.bin", random.bytes(1024))
    rows = random.integers(0, 9, (2048, 4096), np.uint8)
    with h5py.File(data / "wide.h5", "w") as file:
        file.create_dataset("x", data=rows, chunks=(64, 4096), compression="gzip")
    with h5py.File(data / "narrow.h5", "w") as file:
        file.create_dataset("x", data=rows, chunks=(1, 4096), compression="gzip")
    for name, count, codec in (("rows", 200, "zstd"), ("plain", 2, "none")):
        column = [random.integers(0, 9, NBYTES, np.uint8).tobytes() for _ in range(count * 4)]
        table = pyarrow.table({"x": column})
        path = data / f"{name}.parquet"
        pyarrow.parquet.write_table(table, path, row_group_size=count, compression=codec)


def run_programs(
    programs: Sequence[Callable[[bool, str], int]], make: Callable[[Path], None], asked_s: float
) -> None:
    """Makes the data, or trains once, as the command line says.

    Args:
        programs: any of which may be named.
        make: makes their data.
        asked_s: how long a service takes to answer those that ask one.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--data", default="data")
    parser.add_argument("--off", action="store_true")
    options = parser.parse_args()
    if options.name == "make":
        make(Path(options.data))
        return
    program = {f.__name__: f for f in programs}[options.name]
    parameter = torch.zeros(1, requires_grad=True)  # what libraries import late is no cause
    torch.optim.SGD([parameter], 1e-4).zero_grad()
    if options.name in ASKING:
        os.environ["SERVICE_PORT"] = str(serve(asked_s))
    begin = time.perf_counter()
    steps = program(not options.off, options.data)
    spent = round(time.perf_counter() - begin, 3)
    for pid in SERVING:
        os.kill(pid, 9)
    print(json.dumps({"program": options.name, "loop_s": spent, "steps": steps}), flush=True)


ASKING = ("object_reads", "tracking_service")
"""Programs that ask a service."""

if __name__ == "__main__":
    run_programs((*CAUSES, *HEALTHY), make, 0.012)
