"""Darshan's counters, read by its own C library in child processes.

For logs whose records `counters` does not decode: damaged ones and unknown versions.
The library can abort the process on a damaged log, so it never runs in ours. A child takes
a batch of logs, because starting one costs as much as reading hundreds of logs. Where it
dies, the logs before are kept and the log at fault is tried once more, alone; only when
it kills a fresh child is it given up.
"""

from __future__ import annotations

import pickle
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from vanidl.encoding.one_file import read_one
from vanidl.errors import InputError, VanidlError
from vanidl.parallel import children, interpreter
from vanidl.parallel.threads import core_count
from vanidl.readers.darshan.counter_checks import (
    LAYERS,
    OTHERS,
    Bins,
    disjoint,
    heatmap_records,
    layer_records,
    stripe_records,
)
from vanidl.readers.darshan.counters import is_known
from vanidl.readers.darshan.library_child import NO_LIBRARY
from vanidl.readers.darshan.repair import prepared
from vanidl.readers.records import CounterFile

BATCH = 64
MEMORY_BYTES = 8 << 30
CHILD_SECONDS = 60  # for the start; each log has a limit of its own in the child
_LOG_SECONDS = 40

_ENDINGS = {
    -signal.SIGALRM: "Darshan's library took longer than a log of this size may",
    3: f"Darshan's library wanted more than {MEMORY_BYTES >> 30} GiB of memory",
    NO_LIBRARY: "PyDarshan comes without Darshan's library for this version of Python, which has "
    "to read such logs; use a Python that it has a wheel for, or put libdarshan-util.so on "
    "LD_LIBRARY_PATH",
}
"""What exit statuses of the child mean."""

CHILD = Path(__file__).with_name("library_child.py")
_START = "import runpy; runpy.run_path({file!r}, run_name='__main__')"


class PendingCounters:
    """Counters that children are reading while the caller does something else."""

    def __init__(self, paths: Sequence[str], batches: list[Future[dict[str, CounterFile]]]) -> None:
        self.paths = tuple(paths)
        self._batches = batches

    def done(self) -> bool:
        """Whether `result` would return at once."""
        return all(batch.done() for batch in self._batches)

    def result(self) -> dict[str, CounterFile]:
        """Counters by path, in the order asked for; waits until all are there."""
        return {path: file for batch in self._batches for path, file in batch.result().items()}


def read_counters(paths: Sequence[str]) -> dict[str, CounterFile]:
    """Counters by path. What cannot be read is a loss, never an error."""
    return start_counters(paths).result()


def start_counters(paths: Sequence[str]) -> PendingCounters:
    """Start reading counters in children, at most one a CPU, and return at once."""
    if not paths:
        return PendingCounters((), [])
    workers = max(1, min(core_count(), -(-len(paths) // BATCH)))
    pool = ThreadPoolExecutor(workers, thread_name_prefix="counters")
    batches = [list(paths[i : i + BATCH]) for i in range(0, len(paths), BATCH)]
    mine = children.current()
    pending = PendingCounters(paths, [pool.submit(_batch, batch, mine) for batch in batches])
    pool.shutdown(wait=False)
    return pending


def _batch(paths: list[str], mine: children.Children) -> dict[str, CounterFile]:
    files: dict[str, CounterFile] = {}
    left = list(dict.fromkeys(paths))
    while left:
        answers, ending = _run_child(left, mine)
        files |= {path: _file_or_loss(path, a) for path, a in zip(left, answers, strict=False)}
        left = left[len(answers) :]
        if not answers:
            loss = f"the counters could not be read: {ending}"
            files[left.pop(0)] = CounterFile((), (loss,))
    return files


def _file_or_loss(path: str, answer: Mapping[str, Any]) -> CounterFile:
    try:
        return read_one(lambda _: _file(answer), path)
    except InputError as error:
        return CounterFile((), (str(error),))


def _run_child(paths: list[str], mine: children.Children) -> tuple[list[dict[str, Any]], str]:
    """The answers of one child, in order, and how it ended if there are too few."""
    with _folder() as folder:
        result = Path(folder) / "answers"
        result.touch()
        logs = [prepared(path, Path(folder)) for path in paths]
        request = {
            "logs": [(log.path, _size(log.path)) for log in logs],
            "modules": [*LAYERS, *OTHERS],
            "result": str(result),
            "memory": MEMORY_BYTES,
        }
        seconds = CHILD_SECONDS + _LOG_SECONDS * len(paths)
        ending = _wait(pickle.dumps(request), seconds, mine)
        answers = zip(logs, _answers(result), strict=False)
        return [_with(log.losses, answer) for log, answer in answers], ending


@contextmanager
def _folder() -> Iterator[str]:
    """A temporary folder.

    Raises:
        VanidlError: There is no room for one.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="vanidl-") as folder:
            yield folder
    except OSError as error:
        raise VanidlError(
            f"cannot write temporary files: {error.strerror or error}; name a folder with room in "
            "the environment variable TMPDIR"
        ) from error


def _with(losses: tuple[str, ...], answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {"losses": [*losses, *answer["losses"]]}


def _wait(request: bytes, seconds: float, mine: children.Children) -> str:
    command = interpreter.command(_START.format(file=str(CHILD)))
    try:
        status = mine.run(command, request, seconds, interpreter.environment())
    except subprocess.TimeoutExpired:
        return f"Darshan's library took more than {seconds:.0f} s"
    return ending(status)


def ending(status: int) -> str:
    """How a child ended, in words, by its exit status or minus the signal that ended it."""
    if status in _ENDINGS:
        return _ENDINGS[status]
    if status < 0:
        return f"Darshan's library ended its process with signal {-status}"
    return f"the process that reads them ended with status {status}"


def _size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _answers(result: Path) -> Iterator[dict[str, Any]]:
    # Where the child died while it wrote, the last answer is incomplete.
    with result.open("rb") as file, suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)


def _file(answer: Mapping[str, Any]) -> CounterFile:
    unread = [m for m, version in answer["nothing"].items() if not is_known(m, version)]
    ended = {f"{module} counters are incomplete: 0 records were read" for module in unread}
    layers, losses = [], [loss for loss in answer["losses"] if loss not in ended]
    for name, (counters, times, *arrays) in answer["records"].items():
        if name in unread:
            continue
        # Transposed, so that every counter is one contiguous row.
        ids, ranks, values, seconds = (array.T.copy() for array in arrays)
        table = ids, ranks, values, seconds
        records, loss = layer_records(name, tuple(counters), tuple(times), table)
        layers.append(records)
        losses += [loss] if loss else []
    others = answer["others"]
    return CounterFile(
        tuple(disjoint(layers)),
        tuple(losses),
        tuple(stripe_records(others.get("LUSTRE", ()))),
        tuple(heatmap_records(_bins(others.get("HEATMAP", ())))),
        tuple(unread),
    )


def _bins(records: Iterable[tuple[int, int, float, bytes, bytes]]) -> Iterator[Bins]:
    for key, rank, width_s, written, read in records:
        yield key, rank, width_s, np.frombuffer(written, np.int64), np.frombuffer(read, np.int64)
