"""Seconds that every hostile shape costs its reader and whole commands, against the law.

The law: at most 1 s + 1 us a byte of processor time, however the file is made. Of commands
it is said, not judged: they do more than read.

    python -m benchmarks.vanidl.hostile_shapes [--commands] [--times N] [SHAPE ...]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.measure import processor_s
from tests.fuzz import commands, costs
from tests.fuzz.readers import READERS
from tests.fuzz.shapes import SHAPES, Shape

FREE_S = 1.0
S_A_BYTE = 1e-6
COMMANDS = ("summary", "report", "export chrome", "check")


def main() -> int:
    """Prints the table; 1 where a reader breaks the law."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help="by default all of them")
    parser.add_argument("--times", type=int, default=1, help="so many times as large")
    parser.add_argument("--commands", action="store_true", help="time whole commands too")
    options = parser.parse_args()
    tried = COMMANDS if options.commands else ()
    if tried:
        commands.warm(fresh=False)
    head = ["shape", "format", "bytes", "reader s", "us a byte", "law", *(f"{c} s" for c in tried)]
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    broken = 0
    for name in options.shapes or SHAPES:
        row, holds = _row(SHAPES[name], options.times, tried)
        broken += not holds
        print("| " + " | ".join([name, *row]) + " |", flush=True)
    return int(broken > 0)


def _row(shape: Shape, times: int, tried: tuple[str, ...]) -> tuple[list[str], bool]:
    with tempfile.TemporaryDirectory(prefix="shapes-") as name:
        folder = Path(name)
        (folder / "out").mkdir()
        reader = READERS[shape.reader]
        path = folder / "run" / reader.name
        path.parent.mkdir(parents=True)
        size = path.write_bytes(shape.make(shape.count * times))
        spent = _forked_s(lambda: costs.outcome(reader.read, path))
        holds = spent <= FREE_S + S_A_BYTE * size
        row = [shape.reader, f"{size:,}", f"{spent:.2f}", f"{spent / size * 1e6:.2f}",
               "holds" if holds else "BROKEN"]  # fmt: skip
        return [*row, *(_command_s(command, folder) for command in tried)], holds


def _command_s(name: str, folder: Path) -> str:
    line = commands.line_of(name, folder)
    before = processor_s()
    verdict, _ = commands.run(line, folder)
    spent = f"{processor_s() - before:.2f}"
    return spent if verdict in (commands.ANSWER, commands.REFUSED) else f"{spent} {verdict}"


def _forked_s(call: Callable[[], object]) -> float:
    """Processor seconds of a call in a fork, which frees nothing and leaves nothing behind."""
    before = processor_s()
    pid = os.fork()
    if not pid:
        call()
        os._exit(0)
    os.waitpid(pid, 0)
    return processor_s() - before


if __name__ == "__main__":
    sys.exit(main())
