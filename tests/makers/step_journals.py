"""Journals of recorded steps, by the recorder's own writer."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

from vanidl.record.injected.vanidl_steps import journal as written

START = 1_700_000_000_000_000_000
MS = 1_000_000
CODES = {
    "w": written.WAIT, "e": written.END, "i": written.ITER, "o": written.OPTIMIZER,
    "s": written.STEP, "v": written.OTHER_STEP, "c": written.COLLATE, "f": written.FETCH,
    "k": written.WORKER, "t": written.TAKEN, "C": written.CHECKPOINT, "L": written.LOAD,
    "P": written.PHASE, "m": written.MODE, "F": written.FORWARD, "b": written.BACKWARD,
    "B": written.BACKWARD, "u": written.WORKERS_START, "d": written.WORKERS_STOP,
    "x": written.COLLECTIVE,
}  # fmt: skip


def events(text: str) -> Iterator[tuple[int, int, int, int]]:
    """`w0:10-15`: kind, loader, begin and end in ms; `o:20` is a step of an optimizer."""
    for word in text.split():
        call, _, times = word.partition(":")
        begin, _, end = times.partition("-")
        loader = int(call[1:].rstrip("+-") or 0)
        span = (int(begin), int(end or begin))
        if call[0] == "m":  # `m7+:20`: model 7 is switched to training
            yield (written.MODE, int(call[1:-1]) << 1 | (call[-1] == "+"), *span)
            continue
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


def text_rows(values: dict) -> bytes:
    """A text as the recorder writes it."""
    text = json.dumps(values).encode()
    rows = -(-len(text) // 32)
    return struct.pack("<4q", written.TEXT, rows, 0, 0) + text.ljust(rows * 32)


def journal_bytes(process: dict, text: str, loaders: int = 3) -> bytes:
    """The journal of any process."""
    described = [{"loader": k, "class": "DataLoader", "dataset": f"D{k}"} for k in range(loaders)]
    return b"".join([written.MAGIC, *map(text_rows, [process, *described]), events_bytes(text)])


def events_bytes(text: str) -> bytes:
    """The rows of events."""
    return b"".join(
        struct.pack("<4q", code, number, START + begin * MS, START + end * MS)
        for code, number, begin, end in events(text)
    )


def random_journal(seed: int) -> bytes:
    """A journal of calls in no sensible order: of several loaders and threads, some nested."""
    chance = random.Random(seed)
    loaders, roles = chance.choice([1, 2, 3]), ("training", "evaluation", "setup")
    parts = [written.MAGIC, text_rows({"pid": 1, "host": "node", "rank": 0})]
    for k in range(loaders):
        role = {} if chance.random() < 0.7 else {"role": chance.choice(roles)}
        parts.append(text_rows({"loader": k, "class": "Loader", "dataset": f"D{k}", **role}))
    optimizer, marks, others = (0.3 * (chance.random() < p) for p in (0.6, 0.3, 0.2))
    now, used = 10**9, 0
    for _ in range(chance.randrange(1, 300)):
        begin = now + chance.choice([0, 1, 5, 3, 3, 2 * 10**9 if chance.random() < 0.2 else 3])
        end = begin + chance.choice([0, 1, 7])
        if chance.random() < 0.03:
            begin -= chance.choice([10, 50, 300, 10**6])
        used = chance.randrange(loaders) if chance.random() < 0.02 else used
        thread = (chance.random() > 0.97) << written.THREAD_SHIFT
        kind = chance.random()
        loader = chance.randrange(loaders) if chance.random() < 0.1 else used
        call = chance.choice([written.WAIT] * 8 + [written.END, written.ITER])
        row = (call | thread | loader << written.LOADER_SHIFT, chance.randrange(3) << 32)
        if kind < optimizer:
            row, begin = (written.OPTIMIZER | thread, 0), end
        elif kind < optimizer + marks:
            row = (written.STEP | thread, 0)
        elif kind < optimizer + marks + others / 3:
            row = (written.OTHER_STEP, 0)
        elif kind > 0.99:
            parts.append(text_rows({"loader": loader, "class": "Loader", "role": "training"}))
        parts.append(struct.pack("<4q", *row, max(begin, 1), end))
        now = max(now, end) + chance.choice([0, 1])
    return b"".join(parts)
