"""Options of the loaders that come along: choices and defaults are those of their rooms."""

from __future__ import annotations

import argparse

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.decoders import dataset, folders
from vanidl_loaders.loader.registry import LOADERS, OPTIONS, find_loader
from vanidl_loaders.pls import exchange as pls_exchange
from vanidl_loaders.pls import exchange_plan
from vanidl_loaders.pls import loader as pls
from vanidl_loaders.ranks import messages
from vanidl_loaders.scheduled import exchange, plan
from vanidl_loaders.scheduled import loader as scheduled
from vanidl_loaders.spatial import grid, reading

CHOICES = {
    "balance": plan.BALANCES,
    "epoch_order": plan.EPOCH_ORDERS,
    "node_buffer": scheduled.NODE_BUFFERS,
    "node_exchange": exchange.EXCHANGES,
    "exchange_backend": messages.BACKENDS,
    "partition": exchange_plan.PARTITIONS,
    "edges": grid.EDGES,
    "io": tuple(reading.READ_MODES),
    "decode_on": dataset.DEVICES,
}
DEFAULTS = {
    "node_timeout_s": exchange.EXCHANGE_TIMEOUT_S,
    "exchange_fraction": pls.FRACTION,
    "exchange_bytes": pls_exchange.IN_FLIGHT_NBYTES,
    "exchange_timeout_s": pls_exchange.TIMEOUT_S,
}


def test_choices_and_defaults_are_those_of_the_rooms() -> None:
    parser = argparse.ArgumentParser()
    for declare in OPTIONS.values():
        declare(parser)
    found = {action.dest: action for action in parser._actions}
    chosen = {dest: tuple(a.choices) for dest, a in found.items() if a.choices is not None}
    assert chosen == CHOICES
    assert {dest: found[dest].default for dest in DEFAULTS} == DEFAULTS
    assert f"DATA/{folders.ENCODED})" in found["encoded"].help


@pytest.mark.parametrize("name", LOADERS)
def test_each_loader_offers_the_options_that_help_shows(name: str) -> None:
    assert find_loader(name).add_arguments is OPTIONS[name]
