from __future__ import annotations

import gzip
import json
import math
from functools import cache

import pytest

from vanidl.encoding import budget, text_stream
from vanidl.encoding.text_stream import TextStream


@pytest.fixture(params=["isal.isal_zlib", "zlib"], autouse=True)
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_stream, "gzip_codec", pytest.importorskip(request.param))


def stream(path, data: bytes) -> tuple[bytes, str]:
    path.write_bytes(data)
    text = TextStream(path)
    return b"".join(text), text.damage


def test_text_of_gzip_members(tmp_path) -> None:
    parts = [bytes([65 + i]) * 300_000 for i in range(3)] + [b"", b"end"]
    packed = b"".join(gzip.compress(part) for part in parts)
    assert stream(tmp_path / "x", packed) == (b"".join(parts), "")
    assert stream(tmp_path / "x", packed + bytes(1000)) == (b"".join(parts), "")
    assert stream(tmp_path / "x", b"plain") == (b"plain", "")


def test_highly_compressible_text_is_whole(tmp_path) -> None:
    text = b"a" * 20_000_000
    assert stream(tmp_path / "x", gzip.compress(text)) == (text, "")


@cache
def numbers() -> tuple[bytes, bytes]:
    """A text of 2 MB that is not very compressible, and packed."""
    text = json.dumps([math.sin(i) for i in range(100_000)]).encode()
    return text, gzip.compress(text)


@pytest.mark.parametrize("rest", [b"", b"\x1f", bytes(5), bytes(5) + b"\x1f"])
def test_a_single_byte_behind_the_last_member_may_begin_another(tmp_path, rest) -> None:
    text, damage = stream(tmp_path / "x", gzip.compress(b"text") + rest)
    assert text == b"text"
    assert bool(damage) == rest.endswith(b"\x1f")


@pytest.mark.parametrize("share", [0.001, 0.3, 0.7, 0.999])
def test_a_cut_gzip_file_gives_a_prefix(tmp_path, share: float) -> None:
    text, packed = numbers()
    got, damage = stream(tmp_path / "x", packed[: int(len(packed) * share)])
    assert text.startswith(got)
    assert len(got) > len(text) * (share - 0.05)
    assert "cut" in damage


def test_damaged_gzip_data(tmp_path) -> None:
    text, whole = numbers()
    packed = bytearray(whole)
    packed[len(packed) // 2] ^= 255
    got, damage = stream(tmp_path / "x", bytes(packed))
    assert damage
    assert got[: len(text) // 4] == text[: len(text) // 4]
    assert stream(tmp_path / "x", whole + b"no gzip")[0] == text


def test_a_bomb_ends(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "FREE_TEXT_BYTES", 1 << 20)
    got, damage = stream(tmp_path / "x", gzip.compress(b"a" * 30_000_000))
    assert damage.startswith("its decompressed size exceeds 2.")
    assert "MiB of text, the limit of a file of its size (--max-memory raises it)" in damage
    assert len(got) < 10_000_000
