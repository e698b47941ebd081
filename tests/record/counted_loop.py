"""A loop without any framework, in processes of several kinds: counted_loop.py HOW FOLDER.

Each process that iterates writes a line for each batch, FOLDER/PID: the end of its wait, ns.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BATCHES = 5
RANKS = 4
LOST_S = 1.0


class Batches:
    """The recorder is told of it by `--wait __main__:Batches`, and of `batches` by its module."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.left


def iterate(folder: str, count: int = BATCHES, pause_s: float = 0.0) -> None:
    with (Path(folder) / str(os.getpid())).open("w", buffering=1) as file:
        for _ in Batches(count):
            file.write(f"{time.time_ns()}\n")
            time.sleep(pause_s)


def forked(folder: str) -> None:
    if not os.fork():
        iterate(folder)
        return
    os.wait()


def called(folder: str) -> None:
    subprocess.run([sys.executable, __file__, "alone", folder], check=True)


def by(method: str, folder: str) -> None:
    child = multiprocessing.get_context(method).Process(target=iterate, args=(folder,))
    child.start()
    child.join()


def ranks(folder: str) -> None:
    """Four ranks; one is killed in the middle."""
    words = [sys.executable, __file__, "rank", folder]
    every = [
        subprocess.Popen(words, env={**os.environ, "RANK": str(k), "WORLD_SIZE": str(RANKS)})
        for k in range(RANKS)
    ]
    os.write(1, b"out\n")
    raise SystemExit(max(abs(process.wait()) for process in every))


def rank(folder: str) -> None:
    killed = os.environ["RANK"] == "2"
    iterate(folder, 60 if killed else BATCHES, 0.025 if killed else 0.0)
    if killed:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    how, where = sys.argv[1:]
    if how in ("fork", "spawn", "forkserver"):
        by(how, where)
    else:
        {"alone": iterate, "os.fork": forked, "subprocess": called, "ranks": ranks, "rank": rank}[
            how
        ](where)
