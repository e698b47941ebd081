"""Journals of recorded steps, by the recorder's own writer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vanidl.record.injected.vanidl_steps import journal as written

START = 1_700_000_000_000_000_000
MS = 1_000_000
CODES = {
    "w": written.WAIT, "e": written.END, "i": written.ITER, "o": written.OPTIMIZER,
    "c": written.COLLATE, "f": written.FETCH, "k": written.WORKER, "t": written.TAKEN,
}  # fmt: skip


def events(text: str) -> Iterator[tuple[int, int, int, int]]:
    """`w0:10-15`: kind, loader, begin and end in ms; `o:20` is a step of an optimizer."""
    for word in text.split():
        call, _, times = word.partition(":")
        begin, _, end = times.partition("-")
        loader = int(call[1:] or 0)
        span = (int(begin), int(end or begin))
        yield (CODES[call[0]] | loader << written.LOADER_SHIFT, 0, *span)


def journal_of(folder: Path, text: str) -> Path:
    events_ = written.Journal(str(folder))
    for k in range(3):
        events_.describe({"loader": k, "class": "DataLoader", "dataset": f"D{k}"})
    for code, number, begin, end in events(text):
        events_.add(code, number, START + begin * MS, START + end * MS)
    events_.close()
    (path,) = folder.glob("*.steps")
    return path
