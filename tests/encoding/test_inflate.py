from __future__ import annotations

import bz2
import random
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests import ROOT
from vanidl.encoding import budget, inflate
from vanidl.encoding.inflate import joined, streams


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regions of any size are inflated from their middle, too."""
    monkeypatch.setattr(inflate, "_AHEAD_STREAM", 0)


def noise(seed: int, size: int = 20_000) -> bytes:
    return random.Random(seed).randbytes(size)


def plain(packed: list[bytes], *, cut: bool = False) -> list[tuple[bytes, int, bool]]:
    region = memoryview(b"".join(packed))
    return [(bytes(s.data), s.end, bool(s.problem)) for s in streams(region, "zlib", cut=cut)]


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("count", [1, 2, 3, 7, 50])
def test_streams_come_in_order_and_whole(count: int) -> None:
    contents = [noise(i) for i in range(count)]
    packed = [zlib.compress(content) for content in contents]
    found = plain(packed)
    assert [content for content, _, _ in found] == contents
    assert [end for _, end, _ in found] == [
        sum(map(len, packed[: i + 1])) for i in range(len(packed))
    ]
    assert not any(problem for _, _, problem in found)


@pytest.mark.usefixtures("ahead")
def test_a_wrong_guess_changes_nothing() -> None:
    # Noise is stored as it is: the streams within the stream look like streams of the region.
    decoys = b"".join(zlib.compress(noise(i, 500)) for i in range(100))
    packed = [zlib.compress(decoys)]
    region = memoryview(packed[0])
    assert inflate._guess_start(region, (0, 0), len(region), zlib.decompressobj) < len(region)
    assert plain(packed) == [(decoys, len(region), False)]
    assert [content for content, _, _ in plain(packed * 3)] == [decoys] * 3


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("damaged", [0, 2, 5, 7])
def test_a_damage_ends_the_streams(damaged: int) -> None:
    packed = [zlib.compress(noise(i)) for i in range(8)]
    packed[damaged] = packed[damaged][:-1] + bytes([packed[damaged][-1] ^ 1])
    found = plain(packed)
    assert [content for content, _, _ in found] == [*(noise(i) for i in range(damaged)), b""]
    assert [problem for _, _, problem in found] == [False] * damaged + [True]


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("missing", [1, 4, 5, 1000, 20_010, 25_000, 100_000])
def test_what_is_before_a_cut_is_trusted(missing: int) -> None:
    contents = [noise(i) for i in range(8)]
    raw = b"".join(map(zlib.compress, contents))[:-missing]
    found = plain([raw], cut=True)
    everything = b"".join(content for content, _, _ in found)
    assert b"".join(contents).startswith(everything)
    assert len(everything) >= len(raw) - 8 * 20
    assert found[-1][2]


def test_an_unfinished_stream_in_a_whole_region_is_not_trusted() -> None:
    found = plain([zlib.compress(noise(1)), zlib.compress(noise(2))[:-10]])
    assert [content for content, _, _ in found] == [noise(1), b""]


def test_bombs_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "FREE_TEXT_BYTES", 1000)
    raw, problem = joined(memoryview(zlib.compress(bytes(10**6))), "zlib", cut=False)
    assert raw == b""
    assert "decompressed size exceeds" in problem


def test_it_works_without_isal(tmp_path: Path) -> None:
    region = tmp_path / "region"
    region.write_bytes(zlib.compress(noise(1)) + zlib.compress(noise(2))[:-1] + b"\0")
    code = (
        "import sys, pathlib; sys.modules['isal'] = None\n"
        "from vanidl.encoding.inflate import streams\n"
        f"data = memoryview(pathlib.Path({str(region)!r}).read_bytes())\n"
        "found = list(streams(data, 'zlib', cut=False))\n"
        "assert [len(s.data) for s in found] == [20000, 0] and found[1].problem"
    )
    root = ROOT
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)


@pytest.mark.usefixtures("ahead")
@pytest.mark.parametrize("window", [1, 20_000, 70_000])
def test_windows_change_nothing(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "_AHEAD_WINDOW", window)
    contents = [noise(i) for i in range(20)]
    assert [content for content, _, _ in plain([*map(zlib.compress, contents)])] == contents


def test_the_next_stream_is_found_however_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflate, "_LARGEST_PIECE", 1000)
    packed = [zlib.compress(noise(i, 100_000)) for i in range(2)]
    region, second = memoryview(b"".join(packed)), len(packed[0])
    places = (inflate._AHEAD_STREAM, 0)
    assert inflate._guess_start(region, places, len(region), zlib.decompressobj) == second
    assert inflate._guess_start(region[:second], places, second, zlib.decompressobj) == second


@pytest.mark.parametrize("compression", ["zlib", "bz2"])
@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 8192, 60_000])
def test_streams_of_any_length_in_parts(
    compression: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Highly compressible ones too, of which the inflater holds back more than a part."""
    monkeypatch.setattr(inflate, "_MOST_PART", 4096)
    packer = {"zlib": zlib.compress, "bz2": bz2.compress}[compression]
    for text in (bytes(size), noise(1, size)):
        packed = packer(text)
        # Longer than the region of a log of one process, which is inflated at once.
        long = packer(noise(2))
        found = streams(memoryview(packed + long), compression, cut=False)
        assert [bytes(stream.data) for stream in found] == [text, noise(2)]
