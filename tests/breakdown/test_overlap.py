"""What a wait mostly is, at both sides of the half."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.makers.results import EXAMPLES
from vanidl.breakdown.overlap import IO_WAIT, OTHER_WAIT, UNKNOWN_WAIT


@pytest.mark.parametrize(
    ("io_s", "metadata_s", "rest_s", "mostly"),
    [
        (3.0, 2.0, 5.0, IO_WAIT),
        (5.0, None, None, IO_WAIT),
        (3.0, 1.9, 5.0, OTHER_WAIT),
        (3.0, 1.9, 4.9, UNKNOWN_WAIT),
        (3.0, None, None, UNKNOWN_WAIT),
        (None, 9.0, 9.0, UNKNOWN_WAIT),
    ],
)
def test_a_wait_is_mostly_what_half_of_it_is(io_s, metadata_s, rest_s, mostly):
    mean = replace(
        EXAMPLES["one_rank"]().overlap.mean,
        input_wait_s=10.0,
        input_wait_io_s=io_s,
        input_wait_metadata_s=metadata_s,
        input_wait_rest_at_least_s=rest_s,
    )
    assert mean.wait_is_mostly == mostly
