"""Names of a log: what a budget leaves of them does not depend on the logs that came before."""

from __future__ import annotations

from dataclasses import replace

from vanidl.encoding.budget import OBJECT_BYTES, Budget
from vanidl.readers.darshan.header import LAYOUTS, Header
from vanidl.readers.darshan.job import read_names

NAMES = {1: "/data/a", 2: "/data/b", 3: "/data/c"}
REGION = b"".join(key.to_bytes(8, "little") + name.encode() + b"\0" for key, name in NAMES.items())
HEADER = Header("3.41", LAYOUTS["3.41"], "<", "zlib", (), {}, 0)


def room_for(names: int) -> Budget:
    """A budget that so many of the names fit into."""
    budget = Budget.of_file(len(REGION))
    budget.held_bytes = sum(OBJECT_BYTES + len(name) for name in [*NAMES.values()][:names])
    return budget


def test_each_log_pays_for_names_that_many_share() -> None:
    for names in (3, 1, 3, 0, 2):
        budget = room_for(names)
        found, left = read_names(REGION, HEADER, budget)
        assert found == dict([*NAMES.items()][:names])
        assert left == (3 - names) * len(REGION) // 3
        assert budget.held_bytes <= 0


def test_the_same_bytes_in_another_byte_order_are_other_names() -> None:
    low, _ = read_names(REGION, HEADER, room_for(3))
    high, _ = read_names(REGION, replace(HEADER, byte_order=">"), room_for(3))
    assert [*high] == [key << 56 for key in low]
