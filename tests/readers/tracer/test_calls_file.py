"""Files of the tracer: what a plain loop over slots finds, the reader finds, and damage is said."""

from __future__ import annotations

import gzip
import re
import shutil
import struct
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.makers import calls_files as maker
from tests.makers.calls_files import Call, Calls, Counted, calls_file, read_loop
from vanidl.errors import InputError
from vanidl.readers.records import FARTHEST_OFFSET, LARGEST_NBYTES
from vanidl.readers.tracer import calls_file as calls_file_module
from vanidl.readers.tracer import slots
from vanidl.readers.tracer.calls_file import CallsFile, read_calls
from vanidl.readers.tracer.reading import build_log, read_recorded

FORMAT = ROOT / "vanidl/record/tracer/format.h"
MASK = (1 << 64) - 1


def written(folder: Path, calls: Calls, content: bytes | None = None) -> Path:
    path = folder / calls.name
    path.write_bytes(calls_file(calls) if content is None else content)
    return path


def read(folder: Path, calls: Calls, content: bytes | None = None) -> CallsFile:
    return read_calls(written(folder, calls, content))


# A reader of slots as plain loops, from format.h.


def check_of(slot: bytes, position: int) -> int:
    words = list(struct.unpack("<5Q", slot))
    words[4] &= (1 << 48) - 1
    total = maker.OF_PLACE * (position + 1)
    total += sum(word * factor for word, factor in zip(words, maker.FACTORS, strict=True))
    return (total & MASK) >> 48


def plain_slots(content: bytes) -> list[tuple[int, ...]]:
    """(thread, call, start, end, offset, result, file) of every call whose check is right."""
    found = []
    for chunk in range(1, len(content) // 65536):
        thread = 0
        for i in range(1638):
            at = 65536 * chunk + 40 * i
            slot = content[at : at + 40]
            start, offset, result, _, took, file, call, high, check = struct.unpack(
                "<QqqIIIBBH", slot
            )
            if not any(slot) or check != check_of(slot, at):
                continue
            if call == maker.COUNTERS:
                break
            if call == maker.THREAD:
                thread = result
            elif call >= 16:
                start -= maker.START_MONOTONIC_NS
                end = start + took + (high << 32)
                found.append((thread, call, start, end, offset, result, file))
    return found


def decoded_slots(file: CallsFile) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """(moves as `plain_slots`, other calls without thread and offset)."""
    moves, others = file.found.moves, file.found.others
    names = ("thread", "call", "start_ns", "end_ns", "offset", "nbytes", "file")
    columns = [getattr(moves, name).tolist() for name in names]
    rest = [getattr(others, n).tolist() for n in ("call", "start_ns", "end_ns", "result", "file")]
    return [*zip(*columns, strict=True)], [*zip(*rest, strict=True)]


def test_the_layout_is_that_of_the_header_file(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    program = tmp_path / "layout.c"
    fields = ("chunks", "counters", "missing_since_ns", "missing_reason", "host", "tracer")
    program.write_text(f"""
        #include <stdio.h>
        #include <stddef.h>
        #include "{FORMAT}"
        int main(void) {{
            uint64_t words[5] = {{1, 2, 3, 4, 0xffff000000000005}};
            {"".join(f'printf("%zu ", offsetof(struct vt_header, {name}));' for name in fields)}
            printf("%u %d %d %d %d %d", vt_check(words, 65576), VT_NAME, VT_THREAD, VT_FREAD,
                   VT_OPEN, VT_FOPEN);
            printf(" %d %d %d", VT_FSYNC, VT_MMAP, VT_MUNMAP);
        }}""")
    subprocess.run([compiler, "-o", tmp_path / "layout", program], check=True)
    said = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True).stdout
    slot = struct.pack("<5Q", 1, 2, 3, 4, 0xFFFF000000000005)
    header = maker.header(Calls(), 7, 9)
    assert list(map(int, said.split())) == [
        header.index(struct.pack("<QQ", 7, 9)), 104, 112, 128, header.index(b"node01"),
        header.index(b"0.1.0"), check_of(slot, 65576), slots.NAME, slots.THREAD,
        slots.FIRST_STREAM_MOVE, slots.Call.OPEN, slots.Call.FOPEN, slots.Call.FSYNC,
        slots.Call.MMAP, slots.Call.MUNMAP,
    ]  # fmt: skip


def test_every_call_of_the_header_file_is_known():
    named = dict(re.findall(r"VT_(\w+) = (\d+),", FORMAT.read_text()))
    for call in slots.Call:
        assert int(named[call.name]) == call
    moving = {int(n) for n in named.values() if slots.FIRST_MOVE <= int(n) < slots.BEHIND_MOVES}
    assert {n >> 4 for n in moving} == {1, 2, 3, 4}


calls_of = st.builds(
    Call,
    st.sampled_from([16, 17, 33, 35, 48, 49, 64, 67, 80, 81, 83, 84, 87, 112, 113, 128, 144]),
    st.integers(0, 10**12),
    st.sampled_from([0, 1, 700, (1 << 32) - 1, 1 << 32, (1 << 40) - 1]),
    st.sampled_from([-1, 0, 4096, (1 << 32) - 1, 1 << 32, FARTHEST_OFFSET]),
    st.sampled_from([-2, 0, 1, 4096, (1 << 32) - 1, 1 << 32, LARGEST_NBYTES]),
    st.sampled_from([0, 1, 2, 70_000, (1 << 32) - 1]),
)


@given(
    threads=st.dictionaries(st.integers(1, 1 << 22), st.lists(calls_of, max_size=30), max_size=4)
)
def test_what_plain_loops_find_is_found(tmp_path_factory, threads):
    folder = tmp_path_factory.mktemp("calls")
    calls = Calls(threads, {1: b"/a", 2: b"/b" * 100})
    content = calls_file(calls)
    file = read(folder, calls, content)
    assert file.losses == ()
    plain = plain_slots(content)
    moved = [row for row in plain if row[1] < 80 and row[5] >= 0]
    rest = [(c, s, e, r, f) for _, c, s, e, _, r, f in plain if c >= 80 or r < 0]
    assert decoded_slots(file) == (moved, rest)
    if any(threads.values()):
        assert file.found.names == {1: "/a", 2: "/b" * 100}


def test_chunks_follow_one_another(tmp_path):
    threads = {10: read_loop(5000), 11: read_loop(1700), 12: read_loop(1637), 13: read_loop(1)}
    names = {i: b"/data/%d" % i for i in range(1, 5)}
    calls = Calls(threads, names, room=3 * 65536)
    content = calls_file(calls)
    file = read(tmp_path, calls, content)
    assert file.losses == ()
    assert decoded_slots(file)[0] == plain_slots(content)
    assert Counter(file.found.moves.thread.tolist()) == {10: 5000, 11: 1700, 12: 1637, 13: 1}
    assert len(file.found.names) == 4


def test_one_thread_takes_no_memory_for_its_number(tmp_path):
    moves = read(tmp_path, Calls({10: read_loop(4000)})).found.moves
    assert moves.thread.strides == (0,)
    assert moves.offset.dtype == moves.nbytes.dtype == np.uint32


@pytest.mark.parametrize("where", ["first", "later"])
def test_wide_numbers_are_kept_in_64_bits(tmp_path, where):
    rows = read_loop(60_000)
    rows["offset"][0 if where == "first" else 50_000] = 1 << 40
    rows["offset"][7] = -1
    moves = read(tmp_path, Calls({10: rows})).found.moves
    assert moves.offset.dtype == np.int64
    np.testing.assert_array_equal(moves.offset, rows["offset"])


@pytest.mark.parametrize("length", [1, 31, 32, 33, 64, 95, 96, 4000])
def test_names_of_every_length(tmp_path, length):
    name = (b"/" + b"x" * length)[:length]
    calls = Calls({10: [Call(maker.READ, 1, 1, 0, 5, 1)]}, {1: name, 2: b"/other"})
    file = read(tmp_path, calls)
    assert file.losses == ()
    assert file.found.names == {1: name.decode(), 2: "/other"}


def test_names_that_are_no_text(tmp_path):
    calls = Calls({10: [Call(maker.READ, 1)]}, {1: b"/raw\xff\n"})
    assert read(tmp_path, calls).found.names == {1: "/raw\\xff\n"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_compressed_file_says_the_same(tmp_path, version):
    counted = tuple(Counted(i, opens=i) for i in range(300))  # some of them in a chunk
    calls = Calls({10: read_loop(3000), 11: read_loop(70)}, {1: b"/a", 9: b"b" * 99}, counted)
    content = calls_file(calls)
    plain = read(tmp_path, calls, content)
    content = content if version == 1 else maker.by_bytes(content)
    assert decoded_slots(read(tmp_path, calls, content)) == decoded_slots(plain)  # unpacked again
    path = tmp_path / f"{calls.name}.gz"
    path.write_bytes(gzip.compress(content))
    packed = read_calls(path)
    assert decoded_slots(packed) == decoded_slots(plain)
    assert packed.losses == ()
    path.write_bytes(gzip.compress(content)[:-200])
    assert "is cut" in read_calls(path).losses[0]
    wrong = bytearray(gzip.compress(content))
    wrong[-5] ^= 1  # its checksum
    path.write_bytes(wrong)
    assert "gzip data is damaged" in read_calls(path).losses[0]


# What is impossible, damaged or missing.


@pytest.mark.parametrize(
    ("call", "kept"),
    [
        (Call(maker.READ, 0, 0, 0, LARGEST_NBYTES), True),
        (Call(maker.READ, 0, 0, 0, LARGEST_NBYTES + 1), False),
        (Call(maker.READ, 0, 0, FARTHEST_OFFSET, 1), True),
        (Call(maker.READ, 0, 0, FARTHEST_OFFSET + 1, 1), False),
        (Call(maker.READ, 0, 0, -1, 1), True),
        (Call(maker.READ, 0, 0, -2, 1), False),
        (Call(maker.READ, -slots.EARLIEST_NS, 0, 0, 1), True),
        (Call(maker.READ, -slots.EARLIEST_NS - 1, 0, 0, 1), False),
        (Call(maker.OPEN, -slots.EARLIEST_NS), True),
        (Call(maker.OPEN, -slots.EARLIEST_NS - 1), False),
        (Call(maker.OPEN, 0, 0, -5, LARGEST_NBYTES + 1), True),  # neither is a place or a length
    ],
)
def test_impossible_calls_are_left_out(tmp_path, call, kept):
    calls = Calls({10: [Call(maker.READ, 5, 1, 0, 7), call]})
    file = read(tmp_path, calls)
    count = len(file.found.moves) + len(file.found.others.call)
    assert (count, len(file.losses)) == ((2, 0) if kept else (1, 1))


def test_a_damaged_slot_is_left_out_and_said(tmp_path):
    calls = Calls({10: read_loop(2000)})
    content = bytearray(calls_file(calls))
    content[65536 + 40 * 100 + 17] ^= 4
    file = read(tmp_path, calls, bytes(content))
    assert len(file.found.moves) == 1999
    assert file.losses == ("1 call left out for a wrong check",)


@pytest.mark.parametrize("ended", [60_000_000_000, None])
def test_the_slot_that_a_killed_thread_was_writing_is_no_damage(tmp_path, ended):
    calls = Calls({10: read_loop(100)}, ended=ended)
    content = bytearray(calls_file(calls))
    last = 65536 + 40 * 100
    content[last + 38 : last + 40] = b"\0\0"  # its check, which is written last
    file = read(tmp_path, calls, bytes(content))
    assert len(file.found.moves) == 99
    assert len(file.losses) == (0 if ended is None else 1)
    content[last - 3] ^= 1  # the one before was whole once
    assert read(tmp_path, calls, bytes(content)).losses


def test_a_page_that_is_gone_is_said(tmp_path):
    calls = Calls({10: read_loop(4000)}, {i: b"/data/%d" % i for i in range(1, 5)})
    content = calls_file(calls)
    for page in range(16, 2 * 16):
        at = 4096 * page
        file = read(tmp_path, calls, content[:at] + bytes(4096) + content[at + 4096 :])
        assert file.losses, page
        assert len(file.found.moves) < 4000


def test_room_at_the_end_of_a_chunk_is_nothing_missing(tmp_path):
    """A name that did not fit is where the thread went on; others ended, or wait."""
    names = {i: b"/data/" + b"x" * 3003 + b"%d" % i for i in range(1, 40)}
    threads = {10: read_loop(3000), 11: read_loop(500), 12: read_loop(20)}
    assert read(tmp_path, Calls(threads, names)).losses == ()


def test_a_cut_file_gives_its_whole_pieces(tmp_path):
    calls = Calls({10: read_loop(5000)})
    content = calls_file(calls)
    file = read(tmp_path, calls, content[: 3 * 65536 + 1000])
    assert len(file.found.moves) == 2 * 1637
    assert "it is cut: 5 pieces of 65,536 bytes were written, 3 are there" in file.losses


def test_other_files_are_refused(tmp_path):
    calls = Calls({10: read_loop(10)})
    content = calls_file(calls)
    for wrong, found in (
        (b"", "an empty file"),
        (b"x" * 5000, "found another kind of file"),
        (content[:100], "found 100; the file is cut too short"),
        (content[:8] + b"\3" + content[9:], "found version 3"),
        (content[:12] + b"\1" + content[13:], "pieces of 65537, 40, 256 bytes"),
    ):
        with pytest.raises(InputError, match=found):
            read(tmp_path, calls, wrong)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"pid": 12}, "process or start are not those of the file's name"),
        (
            {"counted": (Counted(1, reads=2, read_sizes=(1,) + (0,) * 9),)},
            "not those of their sizes",
        ),
    ],
)
def test_a_header_that_cannot_be_is_said(tmp_path, fields, said):
    calls = Calls({10: read_loop(10)})
    file = read(tmp_path, calls, calls_file(replace(calls, **fields)))
    assert said in file.losses[0]


def test_more_pieces_than_the_header_says_are_read_and_said(tmp_path):
    calls = Calls({10: read_loop(5000)}, room=65536)
    content = bytearray(calls_file(calls))
    content[96:104] = struct.pack("<Q", 2)
    file = read(tmp_path, calls, bytes(content))
    assert len(file.found.moves) == 5000
    assert "3 more pieces of it was written than the header says" in file.losses[0]


# Clocks.


def test_times_are_on_the_systems_clock(tmp_path):
    file = read(tmp_path, Calls({10: read_loop(5)}))
    assert build_log(file).start_ns == maker.START_REALTIME_NS
    assert not file.clock.was_set


@pytest.mark.parametrize(
    ("shift", "jumps"), [(1000, False), (-1000, False), (10**9, True), (-5000, True)]
)
def test_a_clock_that_was_set_meanwhile(tmp_path, shift, jumps):
    calls = Calls({10: read_loop(3000)}, anchors=(0, shift))
    file = read(tmp_path, calls)
    assert file.clock.was_set == jumps
    (table,) = build_log(file).operations
    moved = table.start_ns - file.found.moves.start_ns
    later = np.arange(3000) >= 1637
    assert (moved[~later] == 0).all()
    assert (moved[later] == (shift if jumps else 0)).all()


# Counters beside slots.


def test_counters_of_more_files_than_one_piece_holds(tmp_path):
    counted = tuple(
        Counted(i, 1, 5, 9, reads=i, bytes_read=10 * i, read_ns=i, read_sizes=(i,) + (0,) * 9)
        for i in range(1, 1001)
    )
    calls = Calls({10: [Call(maker.READ, 1, 2, 0, 4, 1000)]}, {}, counted)
    file = read(tmp_path, calls)
    assert file.losses == ()
    (records,) = read_recorded(Path(file.path)).counters.layers
    assert records.file.tolist() == list(range(1, 1001))
    reads = records.counters["POSIX_READS"]
    assert (int(reads.sum()), int(reads[-1])) == (500_500 + 1, 1001)
    assert int(records.counters["POSIX_BYTES_READ"][-1]) == 10_004
    assert int(records.counters["POSIX_SIZE_READ_0_100"].sum()) == 500_501


def test_blocks_do_not_change_what_is_read(tmp_path, monkeypatch):
    calls = Calls({10: read_loop(9000), 11: read_loop(20)}, {i: b"/%d" % i for i in range(1, 5)})
    path = written(tmp_path, calls)
    whole = decoded_slots(read_calls(path))
    for chunks in (1, 2, 5):
        monkeypatch.setattr(calls_file_module, "BLOCK_BYTES", chunks * slots.CHUNK_BYTES)
        assert decoded_slots(read_calls(path)) == whole
