from __future__ import annotations

import pytest

from tests.makers.results import NASTY
from vanidl.formatting.names import elided, plotted, printable


@pytest.mark.parametrize("name", NASTY)
def test_labels_are_short_and_visible(name):
    assert printable(name).isprintable()
    assert len(elided(name, limit=50)) <= 50
    assert not set(plotted(name)) & set("<>\n")
