"""Damaged files of the tracer: an answer that says what is lost, or the right one, or a refusal."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tests.makers.calls_files import (
    CLOSE,
    FWRITE,
    OPEN,
    PREAD,
    STAT,
    Call,
    Calls,
    Counted,
    calls_file,
    read_loop,
)
from vanidl.errors import InputError
from vanidl.readers.tracer.reading import read_recorded

CALLS = Calls(
    {
        10: read_loop(2500),
        11: [Call(call, 50 * i, 20, 7 * i, 5, 1 + i % 4)
             for i, call in enumerate((OPEN, PREAD, STAT, FWRITE, PREAD, CLOSE) * 120)],
        12: read_loop(1000, start=500),
    },
    {i: b"/data/part-%d.h5" % i * i for i in range(1, 5)},
    (Counted(2, 1, 1, 9, reads=3, bytes_read=300, read_ns=7, read_sizes=(3,) + (0,) * 9),),
)  # fmt: skip

WITHOUT_CHECK = {
    *range(20, 24),  # version of its own pieces is checked; these are parent, user, how it began
    *range(28, 40),
    *range(56, 96),  # error of the anchor, end, limit, room
    *range(104, 600),  # number of counters, of what is missing, accounts, host, program, version
    *range(4096, 65536),  # counters
}
"""Bytes that nothing in a file tells of: a change there may show nowhere."""


def flipped(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(0, len(content)))
    return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(0, 8))]) + content[at + 1 :]


def flipped_in_use(content: bytes, rng: np.random.Generator) -> bytes:
    """A bit of a byte that is not 0: most of a file is empty."""
    places = np.flatnonzero(np.frombuffer(content, np.uint8))
    at = int(places[rng.integers(0, len(places))])
    return content[:at] + bytes([content[at] ^ 1 << int(rng.integers(0, 8))]) + content[at + 1 :]


def cut(content: bytes, rng: np.random.Generator) -> bytes:
    return content[: int(rng.integers(0, len(content)))]


def block(content: bytes, rng: np.random.Generator) -> bytes:
    at = int(rng.integers(0, len(content) - 64))
    return content[:at] + rng.bytes(64) + content[at + 64 :]


def zeroed(content: bytes, rng: np.random.Generator) -> bytes:
    at = 4096 * int(rng.integers(0, len(content) // 4096))
    return content[:at] + bytes(4096) + content[at + 4096 :]


def exchanged(content: bytes, rng: np.random.Generator) -> bytes:
    """Two pieces of 65,536 bytes in each other's place."""
    pieces = [content[i : i + 65536] for i in range(0, len(content), 65536)]
    a, b = rng.choice(np.arange(1, len(pieces)), 2, replace=False).tolist()
    pieces[a], pieces[b] = pieces[b], pieces[a]
    return b"".join(pieces)


KINDS = (flipped, flipped_in_use, cut, block, zeroed, exchanged)


def answer(path: Path) -> tuple[Any, bool] | None:
    """What is said of the file, and whether something is said to be missing; None: refused."""
    try:
        found = read_recorded(path)
    except InputError:
        return None
    log = found.log
    columns = ("record", "op", "offset", "nbytes", "start_ns", "end_ns", "thread")
    tables = [
        (t.layer, t.record_file.tolist(), *(getattr(t, name).tolist() for name in columns))
        for t in log.operations
    ]
    counted = [
        (c.layer, c.file.tolist(), {n: v.tolist() for n, v in c.counters.items()},
         {n: v.tolist() for n, v in c.seconds.items()})
        for c in found.counters.layers
    ]  # fmt: skip
    calls = {kind: (c.start.tolist(), c.end.tolist()) for kind, c in log.calls.items()}
    who = (log.pid, log.parent_pid, log.host, log.user_id, log.command, log.start_ns, log.end_ns)
    return (tables, counted, calls, dict(log.names), who), bool(log.losses)


@pytest.mark.parametrize("mutate", KINDS, ids=lambda kind: kind.__name__)
def test_no_damage_is_silent(tmp_path, mutate):
    content = calls_file(CALLS)
    path = tmp_path / CALLS.name
    path.write_bytes(content)
    whole = answer(path)
    assert whole is not None
    assert not whole[1]
    verdicts: Counter[str] = Counter()
    for seed in range(25 if settings.default.derandomize else 500):
        mutant = mutate(content, np.random.default_rng(seed))
        path.write_bytes(mutant)
        found = answer(path)
        same = min(len(content), len(mutant))
        left, right = (np.frombuffer(c, np.uint8, same) for c in (content, mutant))
        places = set(np.flatnonzero(left != right).tolist())
        if found is None:
            verdicts["refused"] += 1
        elif found[1]:
            verdicts["said"] += 1
        elif found[0] == whole[0]:
            verdicts["right"] += 1
        elif len(mutant) == len(content) and places <= WITHOUT_CHECK:
            verdicts["apart"] += 1
        else:
            raise AssertionError(f"silent: {mutate.__name__}, seed {seed}, {sorted(places)[:9]}")
    assert verdicts["said"] + verdicts["refused"] > 0


@pytest.mark.parametrize(
    ("at", "least_refused"), [(40, 100 * 366 * 86_400 * 10**9), (48, 200 * 366 * 86_400 * 10**9)]
)
def test_times_that_nobody_recorded_are_a_damaged_header(tmp_path, at, least_refused):
    content = bytearray(calls_file(CALLS))
    for nanoseconds, refused in ((least_refused, True), (least_refused - 1, False)):
        content[at : at + 8] = nanoseconds.to_bytes(8, "little")
        content[64:72] = bytes(8)  # it did not end
        path = tmp_path / f"1-{nanoseconds}.calls"
        path.write_bytes(content)
        if refused:
            with pytest.raises(InputError, match="the header is damaged"):
                read_recorded(path)
        else:
            read_recorded(path)


def test_an_end_before_the_start_is_a_damaged_header(tmp_path):
    content = bytearray(calls_file(CALLS))
    start = int.from_bytes(content[40:48], "little")
    for end, refused in ((start - 1, True), (start, False), (0, False)):
        content[64:72] = end.to_bytes(8, "little")
        path = tmp_path / f"1-{end}.calls"
        path.write_bytes(content)
        if refused:
            with pytest.raises(InputError, match="an end at"):
                read_recorded(path)
        else:
            read_recorded(path)
