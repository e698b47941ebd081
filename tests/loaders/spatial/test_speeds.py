"""Short runs: the way that takes least time by the measured speeds, the same on all ranks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")
from hypothesis import given
from hypothesis import strategies as st

from tests.loaders.ranks.threads import on_ranks
from vanidl_loaders.spatial.layouts import Contiguous, open_through_gaps
from vanidl_loaders.spatial.reading import (
    MEASURED_SHARE,
    Cut,
    Speeds,
    choose_fastest,
    measure_speeds,
)

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
    with open_through_gaps(path, most) as fill:
        done = fill(Contiguous(path, 4, shape, stored.dtype), box, out)
    assert out.tobytes() == wanted.tobytes()
    cut = Cut.of(shape, 2, box)
    assert cut.nbytes <= done.nbytes <= cut.span_nbytes
    assert done.requests <= cut.runs


def test_each_way_is_chosen_where_it_is_the_fastest():
    slow_link = Speeds(latency_s=1e-3, bytes_per_s=10e6, message_bytes_per_s=1e9)
    plain_disk = Speeds(latency_s=5e-6, bytes_per_s=2e9, message_bytes_per_s=0.3e9)
    no_latency = Speeds(latency_s=0.0, bytes_per_s=1e6, message_bytes_per_s=1e3)
    ways = [choose_fastest(LAST_AXIS, 4, each, connected=True)
            for each in (slow_link, plain_disk, no_latency)]  # fmt: skip
    assert ways == ["collective", "gaps", "own"]
    assert choose_fastest(LAST_AXIS, 4, slow_link, connected=False) == "gaps"


def test_copies_count_where_storage_is_fast():
    """Packing and unpacking can take longer than reading the gaps from a local disk."""
    local = Speeds(latency_s=1e-5, bytes_per_s=4e9, message_bytes_per_s=2e9)
    assert choose_fastest(LAST_AXIS, 4, local, connected=True) == "collective"
    slow_copies = replace(local, copy_bytes_per_s=0.5e9)
    assert choose_fastest(LAST_AXIS, 4, slow_copies, connected=True) == "gaps"


def test_ranks_of_a_node_read_gaps_where_its_page_cache_serves_all():
    """Together they fetch what a collective read fetches, and exchange nothing."""
    disk = Speeds(latency_s=1e-4, bytes_per_s=0.4e9, message_bytes_per_s=1e9, copy_bytes_per_s=4e9)
    assert choose_fastest(LAST_AXIS, 4, disk, connected=True) == "collective"
    shared = replace(disk, shared_bytes_per_s=10e9)
    assert choose_fastest(LAST_AXIS, 4, shared, connected=True) == "gaps"
    apart = replace(disk, shared_bytes_per_s=0.4e9)
    assert choose_fastest(LAST_AXIS, 4, apart, connected=True) == "collective"


BYTES_PER_S = st.floats(1e4, 1e10)


@given(st.floats(0, 0.1), *[BYTES_PER_S] * 4, st.booleans())
def test_no_other_way_is_faster(latency_s, storage, messages, copies, shared, connected):
    """By the same five numbers, computed for each way alone."""
    span_s = LAST_AXIS[0].span_nbytes / storage
    cut = LAST_AXIS[0]
    requests = math.ceil(cut.span_nbytes / (4 << 20))
    taken = {
        "own": cut.runs * latency_s + cut.nbytes / storage,
        "gaps": requests * latency_s + min(span_s, span_s / 4 + cut.span_nbytes / shared),
        "collective": latency_s
        + cut.nbytes / storage
        + 0.75 * cut.nbytes / messages
        + 1.75 * cut.nbytes / copies,
    }
    if not connected:
        del taken["collective"]
    chosen = choose_fastest(
        LAST_AXIS, 4, Speeds(latency_s, storage, messages, copies, shared), connected=connected
    )
    assert taken[chosen] == pytest.approx(min(taken.values()))


def test_ranks_agree_on_the_slowest_and_read_little(tmp_path):
    path = tmp_path / "stored.bin"
    path.write_bytes(bytes(4 << 20))
    layout = Contiguous(path, 0, (4 << 20,), np.dtype(np.uint8))
    found, _ = on_ranks(3, lambda transport: measure_speeds(layout, 1 << 20, 256, 3, transport))
    assert len({speeds for speeds, _ in found}) == 1
    (speeds,) = {speeds for speeds, _ in found}
    assert speeds.latency_s >= 0
    assert 0 < speeds.bytes_per_s < np.inf
    assert 0 < speeds.message_bytes_per_s < np.inf
    assert 0 < speeds.copy_bytes_per_s < np.inf
    assert 0 < speeds.shared_bytes_per_s < np.inf
    assert all(0 < totals.nbytes <= MEASURED_SHARE * (1 << 20) for _, totals in found)
