"""What the split of I/O says in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.makers.results import EXAMPLES
from vanidl.sections.overlap import describe_open


@pytest.mark.parametrize(("low_s", "said"), [(9.0, ""), (8.9, "8.90 to 10.0 s"), (None, "")])
def test_what_the_clocks_leave_open_of_io_in_waits_is_said_beyond_a_tenth(low_s, said):
    mean = EXAMPLES["one_rank"]().overlap.mean
    mean = replace(mean, in_wait_s=10.0, in_wait_at_least_s=low_s, in_wait_at_most_s=10.0)
    assert describe_open(mean) == said
