"""A program that marks its steps: marked_training.py FOLDER, whose `truth` is what it did."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import vanidl


class Batches:
    """Known to the recorder by `--wait __main__:Batches`: its waits are recorded as well."""

    def __init__(self, count: int) -> None:
        self.left = count

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        time.sleep(0.002)
        return self.left


def wait_for_files(waits: list) -> None:
    files = iter(range(3))
    while True:
        began = time.time_ns()
        try:
            with vanidl.wait("files"):
                next(files)
                time.sleep(0.001)
        except StopIteration:
            break
        waits.append((began, time.time_ns()))
    try:
        with vanidl.step():
            raise ValueError
    except ValueError:
        pass


def train(folder: Path) -> None:
    truth: dict[str, list] = {"training": [], "validation": [], "waits": []}

    @vanidl.step("validation")
    def validate(batch: int) -> int:
        time.sleep(0.001)
        return batch + 1

    for _ in range(2):
        asked = time.time_ns()
        for batch in Batches(4):
            with vanidl.step():
                time.sleep(0.003)
                if batch % 2:  # what the marks say counts, whatever happens within
                    next(Batches(1))
            truth["training"].append((asked, time.time_ns()))
            asked = time.time_ns()
        for batch in Batches(3):
            began = time.time_ns()
            assert validate(batch) == batch + 1
            truth["validation"].append((began, time.time_ns()))
    wait_for_files(truth["waits"])
    (folder / "truth").write_text(json.dumps(truth))


if __name__ == "__main__":
    train(Path(sys.argv[1]))
