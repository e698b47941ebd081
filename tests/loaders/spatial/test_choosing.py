"""Short runs: the way that takes least time by the measured speeds, the same on all ranks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given
from hypothesis import strategies as st

from tests.loaders.ranks.threads import on_ranks
from vanidl_loaders.spatial import posix
from vanidl_loaders.spatial.choosing import MEASURED_SHARE, Cut, Speeds, fastest, measured
from vanidl_loaders.spatial.layouts import Contiguous

LAST_AXIS = [Cut.of((4, 64, 64, 64), 2, ((0, 4), (0, 64), (0, 64), (16 * p, 16 * p + 16)))
             for p in range(4)]  # fmt: skip


@st.composite
def boxes(draw):
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    edges = [sorted(draw(st.sets(st.integers(0, n), min_size=2, max_size=2))) for n in shape]
    return shape, tuple(map(tuple, edges))


@given(boxes(), st.sampled_from([2, 9, 40, 1 << 20]))
def test_through_gaps_come_the_boxs_bytes(tmp_path_factory, case, most):
    shape, box = case
    stored = np.arange(np.prod(shape), dtype=np.int16).reshape(shape)
    path = tmp_path_factory.getbasetemp() / "stored.bin"
    path.write_bytes(b"head" + stored.tobytes())
    wanted = stored[tuple(slice(*each) for each in box)]
    out = np.empty(wanted.size * 2, np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(posix, "MOST_BLOCK_NBYTES", most)
        with posix.opened_through_gaps(path) as fill:
            done = fill(Contiguous(path, 4, shape, stored.dtype), box, out)
    assert out.tobytes() == wanted.tobytes()
    cut = Cut.of(shape, 2, box)
    assert cut.nbytes <= done.nbytes <= cut.span_nbytes
    assert done.requests <= cut.runs


def test_each_way_is_chosen_where_it_is_the_fastest():
    slow_link = Speeds(latency_s=1e-3, bytes_per_s=10e6, message_bytes_per_s=1e9)
    plain_disk = Speeds(latency_s=5e-6, bytes_per_s=2e9, message_bytes_per_s=0.3e9)
    no_latency = Speeds(latency_s=0.0, bytes_per_s=1e6, message_bytes_per_s=1e3)
    ways = [fastest(LAST_AXIS, 4, each, connected=True)
            for each in (slow_link, plain_disk, no_latency)]  # fmt: skip
    assert ways == ["collective", "gaps", "own"]
    assert fastest(LAST_AXIS, 4, slow_link, connected=False) == "gaps"


@given(st.floats(0, 0.1), st.floats(1e4, 1e10), st.floats(1e4, 1e10), st.booleans())
def test_no_other_way_is_faster(latency_s, storage, messages, connected):
    """By the same three numbers, computed for each way alone."""
    cut = LAST_AXIS[0]
    taken = {
        "own": cut.runs * latency_s + cut.nbytes / storage,
        "gaps": latency_s + cut.span_nbytes / storage,
        "collective": latency_s + cut.nbytes / storage + 0.75 * cut.nbytes / messages,
    }
    if not connected:
        del taken["collective"]
    chosen = fastest(LAST_AXIS, 4, Speeds(latency_s, storage, messages), connected=connected)
    assert taken[chosen] == min(taken.values())


def test_ranks_agree_on_the_slowest_and_read_little(tmp_path):
    path = tmp_path / "stored.bin"
    path.write_bytes(bytes(4 << 20))
    layout = Contiguous(path, 0, (4 << 20,), np.dtype(np.uint8))
    found, _ = on_ranks(3, lambda transport: measured(layout, 1 << 20, transport))
    assert len({speeds for speeds, _ in found}) == 1
    (speeds,) = {speeds for speeds, _ in found}
    assert speeds.latency_s >= 0
    assert 0 < speeds.bytes_per_s < np.inf
    assert 0 < speeds.message_bytes_per_s < np.inf
    assert all(0 < totals.nbytes <= MEASURED_SHARE * (1 << 20) for _, totals in found)
