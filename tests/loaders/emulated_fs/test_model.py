from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vanidl_loaders.emulated_fs.model import Cost, Links, expected_s
from vanidl_loaders.errors import UsageError

MB = 1e6


def closed_loop_s(cost, *, clients, requests, nbytes):
    """Last end where each client sends its next request when the last is answered."""
    links = Links(cost)
    ready = dict.fromkeys(range(clients), 0.0)
    left = dict.fromkeys(range(clients), requests)
    while any(left.values()):
        client = min((c for c in left if left[c]), key=lambda c: ready[c])
        ready[client] = links.finish(client, nbytes, ready[client])
        left[client] -= 1
    return max(ready.values())


def test_one_request_costs_latency_and_transfer():
    cost = Cost(0.002, 100 * MB, 300 * MB)
    assert Links(cost).finish("a", 1_000_000, 5.0) == pytest.approx(5.0 + 0.002 + 0.01)


def test_latencies_overlap_and_transfers_share_a_link():
    links = Links(Cost(0.5, math.inf, 1 * MB))
    ends = [links.finish(client, 1_000_000, 0.0) for client in "abc"]
    assert ends == pytest.approx([1.5, 2.5, 3.5])


def test_clients_have_links_of_their_own():
    links = Links(Cost(0.0, 1 * MB, 100 * MB))
    assert links.finish("a", 1_000_000, 0.0) == pytest.approx(1.0)
    assert links.finish("b", 1_000_000, 0.0) == pytest.approx(1.0)
    assert links.finish("a", 1_000_000, 0.0) == pytest.approx(2.0)


def test_nothing_limits_by_default():
    assert Links(Cost()).finish("a", 10**9, 3.0) == 3.0


@pytest.mark.parametrize("clients", [1, 2, 3, 8])
@pytest.mark.parametrize(
    "cost",
    [Cost(0.002, math.inf, 200 * MB), Cost(0.002, 100 * MB, 300 * MB), Cost(0, 50 * MB, 100 * MB)],
)
def test_the_formula_is_the_closed_loop(cost, clients):
    work = {"clients": clients, "requests": 200, "nbytes": 131_072}
    assert closed_loop_s(cost, **work) == pytest.approx(expected_s(cost, **work), rel=0.02)


@given(
    sizes=st.lists(st.integers(0, 10**6), min_size=1, max_size=30),
    latency=st.floats(0, 0.01),
    clients=st.integers(1, 4),
)
def test_no_link_carries_more_than_its_bandwidth(sizes, latency, clients):
    cost = Cost(latency, 10 * MB, 25 * MB)
    links = Links(cost)
    ends = [links.finish(i % clients, size, 0.0) for i, size in enumerate(sizes)]
    assert max(ends) >= latency + sum(sizes) / cost.total_bytes_per_s - 1e-9
    for client in range(clients):
        own = sizes[client::clients]
        if own:
            assert max(ends[client::clients]) >= latency + sum(own) / cost.client_bytes_per_s - 1e-9
    assert min(ends) >= latency


def test_writes_share_the_links_with_a_latency_of_their_own():
    cost = Cost(0.002, math.inf, 1 * MB, write_s=0.5)
    links = Links(cost)
    assert links.finish("a", 1_000_000, 0.0) == pytest.approx(1.002)
    assert links.finish("b", 1_000_000, 0.0, cost.write_s) == pytest.approx(2.002)
    assert Links(cost).finish("b", 1_000_000, 0.0, cost.write_s) == pytest.approx(1.5)


@pytest.mark.parametrize(
    "wrong",
    [(-1.0, 1.0, 1.0), (0.0, 0.0, 1.0), (0.0, 1.0, -1.0), (0, 1, 1, -1), (0, 1, 1, 0, -1),
     (0, 1, 1, 0, 0, -1)],
)  # fmt: skip
def test_costs_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        Cost(*wrong)
