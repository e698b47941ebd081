from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.makers.comparisons import EXAMPLE_COMPARISONS, one, repeats, sample, timed, unlike
from tests.makers.results import EXAMPLES
from vanidl.compare import METRICS, Side, compare
from vanidl.compare.comparison import (
    BETTER,
    LESS,
    MORE,
    NO_DIFFERENCE,
    NO_INTERVAL,
    NOT_COMPARABLE,
    NOT_RECORDED,
    TOO_FEW,
    VERDICTS,
    WORSE,
    _give_verdict,
)
from vanidl.compare.metrics import RESULT, stdio_share
from vanidl.compare.page import make_tiles
from vanidl.compare.statistics import ALPHA
from vanidl.compare.text import write_headline
from vanidl.formatting.units import relative
from vanidl.model.warnings import Notice

JUDGED = {BETTER, WORSE, MORE, LESS}


def changes(a: Side, b: Side):
    return {c.metric.name: c for c in compare([a, b]).pairings[0].changes}


@pytest.mark.parametrize("name", EXAMPLE_COMPARISONS)
def test_laws_of_every_comparison(name):
    for pairing in EXAMPLE_COMPARISONS[name]().pairings:
        for change in pairing.changes:
            assert change.verdict in VERDICTS
            known = change.a is not None and change.b is not None
            assert (change.verdict == NOT_RECORDED) == (not known)
            if not known:
                assert change.ratio is change.low is change.high is change.p is None
            if change.verdict in (NOT_RECORDED, NOT_COMPARABLE, NO_INTERVAL):
                assert change.note
                assert change.p is None
            if change.ratio is not None:
                assert change.ratio == pytest.approx(change.b / change.a)
            if change.low is not None:
                assert change.low <= change.ratio * (1 + 1e-9)
                assert change.ratio <= change.high * (1 + 1e-9)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_run_against_itself_never_wins(name):
    for change in changes(one(name, "A"), one(name, "B")).values():
        assert change.verdict in (NO_INTERVAL, NOT_RECORDED, NOT_COMPARABLE)
        assert change.ratio in (1.0, None)


def test_repeats_against_themselves_show_no_difference():
    side = repeats("A", 0.62)
    for change in changes(side, replace(side, letter="B")).values():
        assert change.verdict in (NO_DIFFERENCE, NOT_RECORDED)


def test_every_metric_is_observed_on_a_full_run():
    found = changes(repeats("A", 0.6), repeats("B", 0.7))
    assert set(found) == {m.name for m in METRICS if m.rests_on != RESULT}
    assert all(c.a is not None for c in found.values())


def test_slower_is_worse_and_swapped_better():
    a, b = repeats("A", 0.62), repeats("B", 0.72)
    there, back = changes(a, b), changes(replace(b, letter="A"), replace(a, letter="B"))
    assert there["step_time_s"].verdict == WORSE
    assert back["step_time_s"].verdict == BETTER
    assert there["throughput"].verdict == WORSE
    assert there["step_time_s"].ratio == pytest.approx(1 / back["step_time_s"].ratio)
    assert there["step_time_s"].low == pytest.approx(1 / back["step_time_s"].high)
    mirror = {WORSE: BETTER, BETTER: WORSE, MORE: LESS, LESS: MORE}
    for name, change in there.items():
        assert back[name].verdict == mirror.get(change.verdict, change.verdict)


@pytest.mark.parametrize(
    ("b", "verdict"),
    [
        ([2.0, 2.01, 1.99, 2.02, 1.98], WORSE),
        ([0.5, 0.51, 0.49, 0.5, 0.52], BETTER),
        ([1.004, 1.0141, 0.9939, 1.024, 0.984], NO_DIFFERENCE),  # sure, but under 1 %
        ([1.3, 0.8, 1.2, 0.9, 1.1], NO_DIFFERENCE),
    ],
)
def test_verdict_of_the_wall_time(b, verdict):
    found = changes(timed("A", [1.0, 1.01, 0.99, 1.02, 0.98]), timed("B", b))["wall_time_s"]
    assert found.verdict == verdict


@pytest.mark.parametrize("runs", [(3, 2), (2, 3), (3, 3), (3, 4), (9, 2), (2, 9), (9, 3)])
def test_the_side_with_fewer_runs_decides_whether_there_is_a_verdict(runs):
    a, b = (np.resize([1.0, 1.001, 0.999], n) * mean for n, mean in zip(runs, (1, 2), strict=True))
    change = changes(timed("A", a, paired=False), timed("B", b, paired=False))["wall_time_s"]
    assert change.verdict == (WORSE if min(runs) >= 3 else TOO_FEW)


def test_runs_that_a_side_did_not_record_do_not_count_for_a_verdict():
    a, b = timed("A", [1.0, 1.001, 0.999]), timed("B", [2.0, 2.001, None])
    assert changes(a, b)["wall_time_s"].verdict == TOO_FEW


def test_three_runs_that_show_no_difference_say_how_large_one_they_would_show():
    a, b = [1.0, 1.05, 0.95], [1.02, 0.98, 1.06]
    for paired, runs in ((True, "3 pairs"), (False, "3 runs each")):
        comparison = compare([timed("A", a, paired=paired), timed("B", b, paired=paired)])
        change = comparison.pairings[0].change("wall_time_s")
        assert change.verdict == NO_DIFFERENCE
        reach = relative(change.high / change.ratio)
        assert f"{runs} as noisy as these show a change of {reach} " in str(
            write_headline(comparison)
        )


@pytest.mark.parametrize("pairs", [2, 3, 4, 5, 6])
def test_few_runs_get_no_verdict_however_large_the_change(pairs):
    a, b = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0][:pairs], [2.0, 2.03, 1.97, 2.05, 1.96, 2.0][:pairs]
    for paired in (True, False):
        change = changes(timed("A", a, paired=paired), timed("B", b, paired=paired))["wall_time_s"]
        assert change.verdict == (WORSE if pairs >= 3 else TOO_FEW)
        assert change.low < change.ratio < change.high  # what was seen is shown


def test_the_primary_metric_is_not_corrected_and_the_others_are():
    pairing = EXAMPLE_COMPARISONS["slower"]().pairings[0]
    primary = pairing.change("throughput")
    assert primary.p_corrected == primary.p
    tested = [c for c in pairing.changes if c.p is not None and c.p_corrected is not None]
    others = [c for c in tested if c.metric.name != "throughput"]
    least = min(others, key=lambda c: c.p)
    assert least.p_corrected == pytest.approx(min(1, len(others) * least.p))


def test_what_never_varies_costs_the_others_nothing():
    found = changes(repeats("A", 0.6), repeats("B", 0.7))
    same = [c for c in found.values() if c.p == 1.0 and c.p_corrected is None]
    assert {"run_time_s", "request_size_median"} <= {c.metric.name for c in same}


def test_more_sides_are_a_family():
    three = EXAMPLE_COMPARISONS["three"]().pairings
    primary = [p.change("throughput") for p in three]
    assert max(c.p_corrected / c.p for c in primary) == pytest.approx(2)
    assert [p.b.letter for p in three] == ["B", "C"]


def test_unrecorded_input_wait_is_never_a_win():
    """A loader that says nothing must not beat one that tells of its waits."""
    found = changes(one("full", "A"), one("no_wait_spans", "B"))
    for name in ("input_wait_s", "lost_to_input_s"):
        assert found[name].verdict == NOT_RECORDED
        assert found[name].b is None
        assert found[name].a > 0
        assert found[name].note == "not recorded in B"


def test_unrecorded_in_some_pairs_leaves_the_others():
    a = timed("A", [1.0, None, 1.02, 0.99])
    b = timed("B", [2.0, 2.1, None, 2.02])
    change = changes(a, b)["wall_time_s"]
    assert change.ratio == pytest.approx((2.0 / 1.0 * 2.02 / 0.99) ** 0.5)
    assert change.values_b == (2.0, 2.1, None, 2.02)


def test_unlike_evidence_is_not_compared():
    pairing = unlike().pairings[0]
    assert pairing.change("exposed_io_s").verdict == NOT_COMPARABLE
    assert pairing.change("bytes_read").verdict == NOT_COMPARABLE  # truncated in A
    assert pairing.change("input_wait_s").verdict == NOT_COMPARABLE  # 300 and 40 steps
    per_step = pairing.change("input_wait_s_per_step")
    assert per_step.verdict == NO_INTERVAL
    assert per_step.a == pytest.approx(pairing.change("input_wait_s").a / 300)
    assert len(pairing.notices) == 3


def test_of_runs_of_unequal_length_the_answer_shows_what_a_step_takes():
    """No tile shows the value of one side as if it were a change."""
    comparison = unlike()
    pairing = comparison.pairings[0]
    assert pairing.comparable("input_wait_s") is pairing.change("input_wait_s_per_step")
    assert pairing.comparable("bytes_read").verdict == NOT_COMPARABLE  # nor is it per step
    shown = {tile.label: tile.value for tile in make_tiles(comparison)}
    assert "Input wait per step" in shown
    assert shown["Bytes read"] == NOT_COMPARABLE
    assert "input wait per step fell" in " ".join(write_headline(comparison).support)


@pytest.mark.parametrize("code", ["truncated", "partial", "unassigned", "reads_not_seen"])
def test_io_recorded_in_part_is_no_improvement(code):
    made = EXAMPLES["full"]()
    notice = Notice(code, "something is missing")
    lost = made.changed(coverage=replace(made.results.coverage, warnings=(notice,)))
    found = changes(one("full", "A"), Side("B", "lossy", (sample(lost),)))
    for name in ("exposed_io_s", "hidden_io_s", "io_time_s", "bytes_read", "requests"):
        assert found[name].verdict == NOT_COMPARABLE
        assert code in found[name].note
    assert found["step_time_s"].verdict == NO_INTERVAL


def test_io_that_moved_to_an_untraced_layer_is_no_improvement():
    made = EXAMPLES["full"]()
    layers = tuple(
        replace(layer, bytes_read=10**9) if layer.layer == "STDIO" else layer
        for layer in made.results.summary.layers
    )
    moved = made.changed(summary=replace(made.results.summary, layers=layers))
    other = Side("B", "stdio", (sample(moved),))
    pairing = compare([one("full", "A"), other]).pairings[0]
    assert pairing.change("exposed_io_s").verdict == NOT_COMPARABLE
    assert "STDIO" in pairing.notices[0]
    both = compare([replace(other, letter="A"), other]).pairings[0]
    assert both.change("exposed_io_s").verdict == NO_INTERVAL


@pytest.mark.parametrize(("share", "compared"), [(0.0, True), (0.01, True), (0.0101, False)])
def test_io_is_compared_up_to_one_in_a_hundred_bytes_more_through_stdio(share, compared):
    sides = []
    for letter, moved in (("A", 0.0), ("B", share)):
        made = EXAMPLES["full"]()
        first, *_ = made.results.summary.layers
        layers = tuple(
            replace(first, layer=layer, bytes_read=nbytes, bytes_written=0)
            for layer, nbytes in (("POSIX", 10**6 - round(moved * 10**6)),
                                  ("STDIO", round(moved * 10**6)))
        )  # fmt: skip
        summary = replace(made.results.summary, layers=layers)
        sides.append(Side(letter, letter, (sample(made.changed(summary=summary)),)))
    assert stdio_share(sides[1].samples[0]) == share
    verdict = compare(sides).pairings[0].change("exposed_io_s").verdict
    assert verdict == (NO_INTERVAL if compared else NOT_COMPARABLE)


@pytest.mark.parametrize(("b", "verdict"), [(1.0099, NO_DIFFERENCE), (1.0102, WORSE)])
def test_a_change_is_called_from_one_in_a_hundred_of_the_larger_side_on(b, verdict):
    """So that A against B is as B against A: 1.0100 to 1.0101 are less of one side than of both."""
    near = np.array([-2, -1, 0, 1, 2]) * 1e-6
    a, b = (timed(letter, (mean + near).tolist()) for letter, mean in (("A", 1.0), ("B", b)))
    assert changes(a, b)["wall_time_s"].verdict == verdict
    back = changes(b, a)["wall_time_s"].verdict
    assert back == {WORSE: BETTER}.get(verdict, verdict)


def test_a_change_that_is_one_in_a_hundred_of_one_side_alone_is_not_called():
    near = np.array([-2, -1, 0, 1, 2]) * 1e-7
    a, b = (timed(letter, (mean + near).tolist()) for letter, mean in (("A", 1.0), ("B", 1.01005)))
    for sides in ((a, b), (b, a)):
        assert changes(*sides)["wall_time_s"].verdict == NO_DIFFERENCE


@pytest.mark.parametrize(
    ("p", "verdict"), [(ALPHA, WORSE), (np.nextafter(ALPHA, 1), NO_DIFFERENCE)]
)
def test_a_change_is_called_up_to_the_level_itself(p, verdict):
    seen = timed("A", [1.0, 1.1, 1.2, 1.3, 1.4])
    change = changes(seen, timed("B", [2.0, 2.1, 2.2, 2.3, 2.4]))["wall_time_s"]
    assert _give_verdict(replace(change, verdict=NO_DIFFERENCE), p).verdict == verdict


@pytest.mark.parametrize(
    ("name", "primary"),
    [("slower", "throughput"), ("wall_time_only", "wall_time_s"), ("nothing", "run_time_s")],
)
def test_primary_metric_is_what_all_recorded(name, primary):
    assert EXAMPLE_COMPARISONS[name]().primary == primary


def test_runs_without_pair_numbers_are_not_paired():
    unpaired = compare(
        [timed("A", [1, 1.1], paired=False), timed("B", [1, 1.2, 1.3], paired=False)]
    )
    assert not unpaired.pairings[0].paired
    assert unpaired.pairings[0].change("wall_time_s").low is not None


def test_one_side_is_no_comparison():
    with pytest.raises(ValueError, match="two sides"):
        compare([one("full", "A")])
