"""`python -m tests.fuzz.commands`: whole commands over hostile values, and a table of verdicts.

Every case is a run of a few whole logs with one file of `values` among them, or a damaged data file
under --inspect, and one command, in a fork with 4 GB and a minute. Exit status 1 where one ended
otherwise than by an answer or a refusal in one line, took more than 2 GB, or wrote a control
character to the terminal or into a file of text.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import os
import re
import resource
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from tests.fuzz import forks
from tests.fuzz.readers import READERS
from tests.fuzz.values import RESULTS, WAYS, Rng, files_of
from vanidl.cli import main as vanidl
from vanidl.commands import arguments
from vanidl.report import page

MEMORY_BYTES = 4_000_000_000
SECONDS = 60

ANSWER, REFUSED = "answer", "refused in one line"
RAISED, LONG, SIGNAL, HUNG = "traceback", "refused in many lines", "signal", "hang"
LARGE, CONTROL = "over 2 GB", "control character"
FAULTS = (RAISED, LONG, SIGNAL, HUNG, LARGE, CONTROL)
VERDICTS = (ANSWER, REFUSED, *FAULTS)
_LARGE_KIB = 2_000_000
_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What steers a terminal or a reader's eye: no output holds one, whatever a log says."""
_MOST_MESSAGE = 4000  # characters that a refusal may have
_STATUS = {ANSWER: 0, REFUSED: 1, RAISED: 2, LONG: 3, CONTROL: 4}

COMMANDS: dict[str, tuple[str, ...]] = {
    "summary": ("summary", "RUN", "--json"),
    "summary text": ("summary", "RUN", "--full"),
    "summary brief": ("summary", "RUN"),
    "summary --anonymize": ("summary", "RUN", "--anonymize", "--json"),
    "report": ("report", "RUN", "-o", "OUT/page.html"),
    "report --anonymize": ("report", "RUN", "--anonymize", "-o", "OUT/page.html"),
    "export chrome": ("export", "RUN", "--to", "chrome", "-o", "OUT/t.json"),
    "export csv": ("export", "RUN", "--to", "csv", "-o", "OUT/csv"),
    "export json": ("export", "RUN", "--to", "json", "-o", "OUT/t.json"),
    "export parquet": ("export", "RUN", "--to", "parquet", "-o", "OUT/parquet"),
    "check": ("check", "RUN", "--json"),
    "survey": ("survey", "RUN", "-o", "OUT/survey"),
    "compare": ("compare", "RUN", "RUN"),
}
INSPECT = "summary --inspect"


def main() -> int:
    """Prints the table; 1 where there is a fault in it."""
    options = _options()
    table: dict[str, Counter[str]] = {name: Counter() for name in (*COMMANDS, INSPECT)}
    notes = []
    warm(fresh=options.fresh)
    numbers = range(options.first, options.first + options.cases)
    with ProcessPoolExecutor(options.jobs, get_context("fork")) as jobs:
        ended = jobs.map(partial(_ended, options.seed), numbers, chunksize=8)
        for number, (name, way, word, said) in zip(numbers, ended, strict=True):
            table[name][word] += 1
            if word in FAULTS:
                notes.append(f"{word}: {name}, {way}, case {number}\n{said[-1500:]}")
    _show(table, notes)
    return int(bool(notes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.commands", description=__doc__)
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    parser.add_argument(
        "--fresh", action="store_true", help="interpreters that commands start are no forks"
    )
    return parser.parse_args()


def warm(*, fresh: bool) -> None:
    """What every case would pay for otherwise: imports, templates, words, other interpreters."""
    for name in arguments.COMMANDS:
        arguments.find_command(name)
    for name in ("pandas", "pyarrow.parquet", "h5py", "vanidl.dataset.sandbox"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if not fresh:
        forks.instead_of_interpreters()
    with tempfile.TemporaryDirectory(prefix="commands-") as folder:
        (Path(folder) / "out").mkdir()
        _put(Path(folder) / "run", READERS["dftracer"].name, READERS["dftracer"].content)
        line = line_of("report --anonymize", Path(folder))
        if _answered(line, Path(folder) / "said") != ANSWER:
            raise SystemExit((Path(folder) / "said").read_text())
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page of this process


def _ended(seed: int, number: int) -> tuple[str, str, str, str]:
    """(command, way of the file, verdict, what was said) of a case."""
    with tempfile.TemporaryDirectory(prefix="commands-") as folder:
        name, way, line = _case(Path(folder), np.random.default_rng((seed, number)))
        return name, way, *run(line, Path(folder))


def _case(folder: Path, rng: Rng) -> tuple[str, str, list[str]]:
    """(command, way of the file, command line)."""
    (folder / "run").mkdir()
    (folder / "out").mkdir()
    if rng.random() < 0.12:
        return INSPECT, *_inspected(folder, rng)
    ways = [*WAYS, *RESULTS, *RESULTS]  # a result holds files of four kinds
    way = ways[int(rng.integers(0, len(ways)))]
    name = list(COMMANDS)[int(rng.integers(0, len(COMMANDS)))]
    for of_way, content in files_of(way, rng).items():
        _put(folder / "run", of_way, content)
    for whole in ("darshan", "dftracer", "kineto"):
        if rng.random() < (0.05 if way in RESULTS else 0.3):
            _put(folder / "run", f"whole_{READERS[whole].name}", READERS[whole].content)
    if way not in RESULTS and rng.random() < 0.4:  # a RUN as it is left, but for that file
        for whole in ("steps", "objects", "calls", "states", "run record"):
            place = folder / "run" / READERS[whole].name
            if not place.exists() and rng.random() < 0.8:
                _put(folder / "run", READERS[whole].name, READERS[whole].content)
    return name, way, line_of(name, folder)


def line_of(name: str, folder: Path) -> list[str]:
    """The command line on the folders of a case."""
    places = {"RUN": str(folder / "run"), "OUT": str(folder / "out")}
    return [_placed(word, places) for word in COMMANDS[name]]


def _placed(word: str, places: dict[str, str]) -> str:
    head, _, rest = word.partition("/")
    return "/".join([places.get(head, head), *([rest] if rest else [])])


def _put(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _inspected(folder: Path, rng: Rng) -> tuple[str, list[str]]:
    """A log that read a data file, and that file, damaged."""
    from tests.makers.darshan_logs import Log, Record, log_bytes

    kinds = _data_files(folder)
    path = kinds[int(rng.integers(0, len(kinds)))]
    content = bytearray(path.read_bytes())
    for _ in range(int(rng.integers(1, 5))):
        at, size = int(rng.integers(0, len(content))), int(rng.integers(1, 9))
        odd = (rng.bytes(size), b"\xff" * size, b"\x7f" * size, bytes(size), b"9" * size)
        content[at : at + size] = odd[int(rng.integers(0, len(odd)))]
    path.write_bytes(content)
    reads = [(i * 100, 100, i / 10, i / 10 + 0.01, 1) for i in range(20)]
    log = Log(job=(1, 7, 1), names={2**63: str(path).encode()},
              dxt={"DXT_POSIX": [[Record(2**63, 0, "n", [], reads)]]})  # fmt: skip
    _put(folder / "run", "u_x_id7-7_1-2-3-4_1.darshan", log_bytes(log))
    return path.suffix, ["summary", str(folder / "run"), "--inspect", "--json"]


def _data_files(folder: Path) -> list[Path]:
    data = folder / "data"
    data.mkdir()
    rows = np.arange(600, dtype=np.float32).reshape(-1, 6)
    np.save(data / "a.npy", rows)
    np.savez_compressed(data / "a.npz", rows=rows, more=rows[:5])
    (data / "a.tfrecord").write_bytes(READERS["tfrecord"].content)
    with contextlib.suppress(ImportError):
        import h5py

        with h5py.File(data / "a.h5", "w") as file:
            file.create_dataset("x/y", data=rows, chunks=(10, 6), compression="gzip")
    with contextlib.suppress(ImportError):
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"a": rows[:, 0]}), data / "a.parquet")
    return sorted(data.iterdir())


def run(line: list[str], folder: Path) -> tuple[str, str]:
    """(verdict, what the command said on standard error), from a fork with limits."""
    said = folder / "said"
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        _limit()
        os._exit(_STATUS[_answered(line, said)])
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    text = said.read_text(errors="replace") if said.exists() else ""
    if code < 0:
        return (HUNG if code == -signal.SIGALRM else SIGNAL), text
    if usage.ru_maxrss > _LARGE_KIB:
        return LARGE, f"{usage.ru_maxrss} KiB\n{text}"
    return next(word for word, number in _STATUS.items() if number == code), text


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(SECONDS)


def _answered(line: list[str], said: Path) -> str:
    errors, output = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            status = vanidl(line)
    except BaseException:  # whatever it is, it is counted
        said.write_text(traceback.format_exc(), errors="replace")
        return RAISED
    text = errors.getvalue()
    said.write_text(text, errors="replace")
    for name, content in [("stderr", text), ("stdout", output.getvalue()), *_texts_of(said)]:
        if found := _CONTROL.search(content):
            near = content[max(0, found.start() - 80) : found.end() + 80]
            said.write_text(f"{name}: {near!r}")
            return CONTROL
    if status == 0:
        return ANSWER if len(text) < _MOST_MESSAGE else LONG
    # A folder of several jobs is refused with a table of them.
    # A survey of which no job could be read says so where it says how many were.
    told = text.startswith("vanidl: ") or (not text and "could not be read" in output.getvalue())
    few = told and len(text) < _MOST_MESSAGE
    return REFUSED if few else LONG


def _texts_of(said: Path) -> Iterator[tuple[str, str]]:
    """Name and content of each file of text that the command wrote."""
    for path in sorted((said.parent / "out").rglob("*")):
        if path.suffix in (".html", ".json", ".csv", ".txt", ".md", ".svg"):
            content = path.read_bytes().decode("utf-8", "surrogateescape")
            yield path.name, content.replace(_plotly(), "")


@cache
def _plotly() -> str:
    """The library on each page: it has signatures of file formats in its own code."""
    (path,) = Path(page.__file__).parent.glob("templates/plotly-*.js")
    return path.read_text()


def _show(table: dict[str, Counter[str]], notes: list[str]) -> None:
    print("| command | " + " | ".join(VERDICTS) + " |\n|" + "---|" * (len(VERDICTS) + 1))
    total: Counter[str] = sum(table.values(), Counter())
    for name, counts in [*table.items(), (f"total of {total.total()}", total)]:
        print(f"| {name} | " + " | ".join(str(counts[v]) for v in VERDICTS) + " |")
    print("\n".join(["", *sorted(notes)]))


if __name__ == "__main__":
    sys.exit(main())
