"""`vanidl compare --fail-on`: the exit status says what the page says."""

from __future__ import annotations

import pytest

from tests.makers.comparisons import EXAMPLE_COMPARISONS
from vanidl.cli import main
from vanidl.commands import compare as command
from vanidl.compare.comparison import BETTER, NO_DIFFERENCE, TOO_FEW, WORSE


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("slower", WORSE),
        ("alike", NO_DIFFERENCE),
        ("wall_time_only", WORSE),
        ("two_pairs", TOO_FEW),
        ("three", BETTER),
    ],
)
def test_the_status_follows_the_first_metric(monkeypatch, capsys, name, verdict):
    comparison = EXAMPLE_COMPARISONS[name]()
    monkeypatch.setattr(command, "compared", lambda options: comparison)
    verdicts = command.primary_verdicts(comparison)
    assert verdict in verdicts
    expected = command.FAILED if WORSE in verdicts else 0
    assert main(["compare", "a", "b", "--fail-on", "worse"]) == expected
    assert main(["compare", "a", "b"]) == 0
    assert capsys.readouterr().out
