from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from tests.makers.results import EXAMPLES
from tests.viewer import unpacking
from vanidl.analyses.balance import Balance, RankLoad
from vanidl.analyses.datafiles import SamplesPerFile
from vanidl.figures import downsample
from vanidl.figures.figure import Figure
from vanidl.formatting.names import plotted
from vanidl.formatting.units import seconds
from vanidl.report.html import _NO_LOG, page_of
from vanidl.report.page import _list_missing
from vanidl.run import Run
from vanidl.sections import dataset, files, overlap, ranks, requests, steps, timeline
from vanidl.sections.registry import SECTIONS

FIGURES = [figure for section in SECTIONS for figure in section.figures]


@cache
def example(name: str) -> Run:
    return EXAMPLES[name]().run


@cache
def drawn(name: str) -> dict[str, Figure]:
    return {f.id: f for f in (figure(example(name)) for figure in FIGURES)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_axes_write_numbers_as_tables_do(name):
    """`4,000` and `20,000`, where plotly alone writes 4000 and 20k."""
    for figure in drawn(name).values():
        layout = figure.spec["layout"] if figure.spec else {}
        for axis in (layout[key] for key in layout if key[1:].startswith("axis")):
            written = axis.get("separatethousands") and axis.get("exponentformat") == "none"
            assert written or "ticktext" in axis, (figure.id, axis)


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("figure", FIGURES, ids=lambda f: f.__module__.rsplit(".", 1)[-1])
def test_every_figure_of_every_run(figure, name):
    result = figure(example(name))
    assert result.title
    assert result.section
    if result.spec is None:
        assert result.table or result.viewer or result.empty_reason or result.caption
        json.dumps(result.viewer, allow_nan=False)
    else:
        graph_objects = pytest.importorskip("plotly.graph_objects")
        graph_objects.Figure(downsample.fill_level(result))
        assert result.table is not None
        assert result.alt_text
        assert result.caption
        assert not result.empty_reason
    json.dumps(result.spec, allow_nan=False)
    for row in result.table.rows if result.table else ():
        assert len(row) == len(result.table.columns)
        json.dumps(row, allow_nan=False)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_timeline_is_explained_by_what_it_draws(name):
    figure = drawn(name)["timeline"]
    if figure.viewer is None:
        return
    kinds = {lane["kind"] for lane in figure.viewer["lanes"]}
    caption = figure.caption
    assert ("ytes per second of the whole job" in caption) == bool(figure.viewer["bandwidth"])
    assert ("steps with their numbers" in caption) == bool(kinds - {"io"})
    assert ("each read and write as a slice" in caption) == ("io" in kinds)
    assert ("click a slice" in caption) == bool(kinds)


def test_samples_of_a_file_and_of_equal_files_are_told_in_few_words():
    one = SamplesPerFile(4096, "given", "--record-size", 1, 512, 512, 512.0, 512, ())
    said = "Samples in the part of each file that was read (4 KiB each, --record-size): "
    assert dataset._compose_samples(one) == f"{said}512 in 1 file."
    equal = replace(one, files=2, total=1024)
    assert dataset._compose_samples(equal) == f"{said}1,024 in 2 files, 512 in each."
    mixed = replace(equal, min=24, max=1000)
    assert (
        dataset._compose_samples(mixed)
        == f"{said}1,024 in 2 files, 24 to 1,000 in one, median 512."
    )


@pytest.mark.parametrize("name", EXAMPLES)
def test_ids_are_unique_and_sections_hang_together(name):
    figures = drawn(name)
    assert len(figures) == len(FIGURES)
    sections = [f.section for f in figures.values()]
    changes = sum(a != b for a, b in pairwise(sections))
    assert changes + 1 == len(set(sections))


def test_size_bars_add_up_to_the_operations_and_bytes():
    run = example("full")
    table = requests.draw_sizes(example("full")).table
    assert table is not None
    totals = [sum(row[i] for row in table.rows) for i in range(1, 5)]
    timeline = run.timeline
    assert totals[2] == timeline.bytes_read.sum()
    assert totals[3] == timeline.bytes_written.sum()
    spec = requests.draw_sizes(example("full")).spec
    by_name = Counter()
    for series in spec["data"]:
        if series["yaxis"] == "y":
            by_name[series["name"]] += sum(series["y"])
    assert (by_name["reads"], by_name["writes"]) == tuple(totals[:2])


@pytest.mark.parametrize("name", ["full", "one_rank", "many_ranks", "hostile"])
def test_overlap_bars_of_a_rank_add_up_to_its_io(name):
    run = example(name)
    spec = overlap.draw_overlap(example(name)).spec
    bars = np.array([s["x"] for s in spec["data"] if s["type"] == "bar"])
    labels = [label for label, _ in spec["data"][0]["customdata"]]
    assert bars.sum(axis=0)[0] == pytest.approx(run.overlap.mean.io_s)
    known = {plotted(r.label): r.io_s for r in run.overlap.per_rank}
    for label, total in zip(labels, bars.sum(axis=0), strict=True):
        if label != "mean":
            assert total == pytest.approx(known[label])


def test_overlap_of_many_ranks_says_what_it_shows():
    result = overlap.draw_overlap(example("many_ranks"))
    assert "40 of 1,024 ranks" in result.caption
    shown = {row[0] for row in result.table.rows}
    worst = max(example("many_ranks").overlap.per_rank, key=lambda r: r.input_wait_s)
    assert worst.label in shown


@pytest.mark.parametrize("name", ["full", "long_run", "many_ranks"])
def test_timeline_holds_all_bytes(name):
    run = example(name)
    figure = timeline.draw_timeline(example(name))
    read = run.timeline.bytes_read.sum()
    assert sum(unpacking.columns(figure.viewer["bandwidth"])["read"]) == read
    assert sum(row[2] for row in figure.table.rows) == read


def test_waits_of_every_rank_are_in_its_lane():
    trace = example("full").trace
    viewer = timeline.draw_timeline(example("full")).viewer
    found = [s for s in unpacking.slices(viewer) if viewer["lanes"][s["lane"]]["kind"] == "waits"]
    assert {viewer["lanes"][s["lane"]]["rank"] for s in found} == {0, 1, 2, 3}
    length = sum(s["pieces"][-1][1] - s["pieces"][0][0] for s in found)
    assert length == (trace.spans.end - trace.spans.start).sum()


def test_too_many_ranks_are_cut_and_said_so():
    result = timeline.draw_timeline(example("many_ranks"))
    assert len(result.viewer["lanes"]) == 192
    assert "192 of 1,024 ranks" in result.caption


@pytest.mark.parametrize(
    ("name", "figure", "shape"),
    [
        ("many_ranks", timeline.draw_ranks_over_time, (256, 256)),
        ("many_ranks", timeline.draw_files_over_time, (1000, 64)),
        ("long_run", timeline.draw_ranks_over_time, (8, 4096)),
        ("full", timeline.draw_files_over_time, (60, 512)),
    ],
)
def test_heat_maps_hold_all_bytes_at_every_level(name, figure, shape):
    run = example(name)
    of_ranks = figure is timeline.draw_ranks_over_time
    line = run.timeline if of_ranks else run.results.filetimeline
    result = figure(example(name))
    assert result.levels.series[0][0].shape == shape
    moved = line.bytes_read.sum() + line.bytes_written.sum()
    for level, amounts in enumerate(result.levels.series[0]):
        assert amounts.sum() == moved
        heat = downsample.fill_level(result, level)["data"][0]
        total = np.nansum(np.array(heat["z"], float)) * heat["dx"] * result.levels.divisor
        assert total == pytest.approx(moved)
    assert len(set(heat["y"])) == shape[0]
    if of_ranks and not result.table.cut.startswith("128 of 256 ranks"):
        assert sum(row[1] for row in result.table.rows) == moved
    assert all(row[1] == sum(row[2:]) for row in result.table.rows)


def test_files_beyond_a_thousand_are_cut_and_said_so():
    result = timeline.draw_files_over_time(example("many_ranks"))
    assert "1,000 of 12,345 files" in result.caption
    assert result.table.cut.startswith("100 of 12,345 files")


def test_steps_of_few_ranks_are_lanes_and_of_many_a_grid():
    few = steps.draw_steps(example("full")).spec
    assert {s["type"] for s in few["data"]} == {"bar"}
    length = sum(sum(s["y"]) for s in few["data"])
    table = example("full").steps.table
    assert length == pytest.approx((table.end_s - table.start_s).sum(), rel=1e-3)
    assert few["layout"]["barmode"] == "overlay"  # stacked, their middles become the ticks
    rest = [s for s in few["data"] if s["name"] == "rest of the step"]
    waits = [s for s in few["data"] if s["name"] == "input wait"]
    assert [s["base"] for s in rest] == [s["y"] for s in waits]
    many = steps.draw_steps(example("many_ranks"))
    assert np.array(many.spec["data"][0]["z"]).shape == (64, 256)
    assert "64 of 1,024 ranks and 256 of 300 steps" in many.caption


def test_unknown_wait_is_said_and_not_drawn():
    result = steps.draw_steps(example("no_wait_spans"))
    assert "unknown, not zero" in result.caption
    assert all(s["name"] != "input wait" for s in result.spec["data"])
    found = overlap.draw_overlap(example("no_wait_spans"))
    assert "input wait" not in [column.title for column in found.table.columns]
    assert "input wait" in found.caption.partition("Not recorded: ")[2]


def test_access_shares_are_hundred_per_cent():
    spec = requests.draw_access(example("full")).spec
    total = np.sum([s["x"] for s in spec["data"]], axis=0)
    assert total == pytest.approx([100, 100])


@pytest.mark.parametrize("count", [2, ranks.MOST_BARS, ranks.MOST_BARS + 1, 10_000])
def test_balance_has_no_more_bars_than_a_screen_has_columns_and_shows_the_busiest(count):
    loads = [RankLoad(f"rank {i}", i, "node", 1, 1, i, 0, (i * 7919) % count + 1.0)
             for i in range(count)]  # fmt: skip
    found = Balance(tuple(loads), 1.0, 1.0, 0)
    result = ranks.draw_ranks(SimpleNamespace(balance=found))
    bars = result.spec["data"][0]["y"]
    assert min(count, ranks.MOST_BARS) / 2 < len(bars) <= ranks.MOST_BARS
    assert max(bars) == count
    assert ("each bar shows" in result.caption) == (count > ranks.MOST_BARS)


@pytest.mark.parametrize("shared", [0, 1 << 30])
def test_a_rank_without_a_record_of_its_own_is_not_said_to_have_read_nothing(shared):
    """Darshan adds up what all ranks opened: who did it is not known."""
    rows = tuple(RankLoad(f"rank {k}", k, "h", 1, k, k, 0, None, float(k)) for k in range(2))
    found = Balance(rows, None, 2.0, 1, "counters", shared, 2.0)
    caption = ranks.draw_ranks(
        SimpleNamespace(balance=found, trace=EXAMPLES["one_rank"]().trace)
    ).caption
    assert ("1 rank did no I/O" in caption) == (not shared)
    assert ("1 rank had no file to itself" in caption) == bool(shared)
    assert ("of what is in the bars" in caption) == bool(shared)


def test_balance_of_one_rank_is_a_table():
    result = ranks.draw_ranks(example("one_rank"))
    assert result.spec is None
    assert "nothing to compare" in result.empty_reason
    assert len(result.table.rows) == 1
    counted = example("counters_only").summary
    nothing = SimpleNamespace(balance=None, summary=counted, trace=SimpleNamespace(ranks=(0,)))
    nothing.trace.job, nothing.trace.logs = SimpleNamespace(tracer="darshan"), ("one",)
    assert ranks.draw_ranks(nothing).empty_reason == result.empty_reason  # not: files of all ranks
    nothing.trace.ranks = (0, 1)
    assert "all ranks opened" in ranks.draw_ranks(nothing).empty_reason


def test_files_table_is_cut_at_a_thousand():
    result = files.draw_files(example("many_ranks"))
    assert len(result.table.rows) == 1000
    assert result.table.cut == "1,000 of 12,345 files"


def test_hostile_names_reach_no_plotly_text_as_markup():
    for figure in drawn("hostile").values():
        texts = json.dumps(figure.spec).replace("<extra>", "").replace("</extra>", "")
        assert "<" not in texts


def test_figures_of_an_untraced_run_say_where_they_come_from():
    figures = drawn("untraced")
    for name in ("timeline", "heatmap"):
        assert "From the tracer's heat map, bins of 1.00 s" in figures[name].caption
    for name in ("sizes", "access", "balance"):
        assert "Darshan's" in figures[name].caption
        assert "counters" in figures[name].caption
    assert "4 MiB more are in no bar" in figures["balance"].caption
    series = [s["name"] for s in figures["balance"].spec["data"]]
    assert "time by counters" in series
    assert "time in I/O" not in series


def test_a_heat_map_of_one_bin_is_no_picture_of_time():
    made = EXAMPLES["untraced"]()
    line = made.results.timeline
    edges = line.edges_s[[0, -1]]
    sums = {k: getattr(line, k).sum(1, keepdims=True) for k in ("bytes_read", "bytes_written")}
    run = made.changed(timeline=replace(line, edges_s=edges, **sums)).run
    expected = f"The tracer's heat map has a single bin of {seconds(float(np.ptp(edges)))}, which"
    for made in (timeline.draw_timeline(run), timeline.draw_ranks_over_time(run)):
        assert made.empty_reason.startswith(expected)
        assert (made.spec, made.viewer, made.table) == (None, None, None)


def test_bars_of_the_counted_access_pattern_are_the_whole():
    for side in zip(*(s["x"] for s in drawn("untraced")["access"].spec["data"]), strict=True):
        assert sum(side) == pytest.approx(100)


@pytest.mark.parametrize("by_fate", [True, False])
def test_colours_of_the_timeline_are_explained_as_they_are(by_fate):
    """Without steps nothing is known of what became of a read: then reads and writes differ."""
    viewer = {"lanes": [{"kind": "io"}], "bandwidth": None, "byFate": by_fate}
    assert ("what became of it" in timeline._say_what_is_drawn(viewer)) == by_fate


def test_files_without_times_are_not_said_to_be_in_the_order_of_time():
    assert "Most bytes first" in drawn("counters_only")["files"].caption
    assert "Longest time first" in drawn("full")["files"].caption


@pytest.mark.parametrize(("osts", "words"), [((7,), "on OST 7"), ((7, 9), "on OSTs 7, 9")])
def test_one_storage_target_is_singular(osts, words):
    assert files._name_osts(osts) == words.removeprefix("on ")


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/d/part-004.tfrecord", "part-004"),
        ("/d/train-00012-of-01024.tfrecord", "…2-of-01024"),
        ("/d/a.h5", "a.h5"),
        ("/d/.a_name_without_stem", "…thout_stem"),
    ],
)
def test_the_file_of_a_step_keeps_its_number(path, words):
    assert steps._name_file(((path, 1.5e-5),), 0) == f"{words} {seconds(1.5e-5)}"


def test_ranks_of_a_log_without_io_have_no_files_in_common():
    summary = example("nothing").summary
    run = SimpleNamespace(balance=None, summary=summary, trace=example("full").trace)
    assert "No POSIX operation was recorded" in ranks.draw_ranks(run).empty_reason


def test_the_file_table_has_the_stripes():
    table = drawn("untraced")["files"].table
    column = [c.title for c in table.columns].index("Lustre stripes")
    words = {row[0]: row[column] for row in table.rows}
    assert words["/data/part-1.h5"] == "20 x 1 MiB on OSTs 0, 1, 2, 3, 4, 5, 6, 7 and 12 more"


def test_undated_steps_are_in_no_picture_of_time():
    figures = drawn("undated_steps")
    assert "no overlap is claimed" in figures["steps"].caption
    assert "no overlap is claimed" in figures["overlap"].empty_reason
    assert not any(lane["kind"] == "steps" for lane in figures["timeline"].viewer["lanes"])
    assert "start" not in [c.title for c in figures["steps"].table.columns]
    assert "Not recorded: start" in figures["steps"].caption


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_overlap_picture_draws_all_busy_time(name):
    """Whatever is known of it: bars add up to the time in I/O of each rank."""
    run = EXAMPLES[name]().run
    split = run.overlap
    drawn = overlap.draw_overlap(run)
    if split is None or drawn.spec is None:
        return
    bars = [trace for trace in drawn.spec["data"] if trace["type"] == "bar"]
    for i, row in enumerate(overlap.pick_ranks(split, overlap.MOST_BARS)):
        shown = sum(trace["x"][i] or 0.0 for trace in bars)
        assert shown == pytest.approx(row.io_s), row.label


def test_io_of_unknown_fate_is_drawn_as_that():
    run = example("no_wait_spans")
    assert run.overlap.mean.in_wait_s is None
    drawn = overlap.draw_overlap(run)
    names = [bar["name"] for bar in drawn.spec["data"]]
    assert ("in steps, not known" in names) == bool(run.overlap.mean.unknown_s)
    assert "not recorded" not in drawn.alt_text


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_overlap_names_what_it_draws_and_nothing_else(name):
    found = overlap.draw_overlap(example(name))
    if found.spec is None:
        return
    bars = [one for one in found.spec["data"] if one["type"] == "bar"]
    assert all(max(x or 0.0 for x in one["x"]) > 0 for one in bars)
    drawn_parts = {one["name"] for one in bars}
    for attribute, part, _, _ in overlap.OVERLAP_PARTS:
        assert (overlap._MEANINGS[attribute] in found.caption) == (part in drawn_parts)


def test_a_wait_far_beyond_the_bars_is_said_instead_of_drawn():
    """Beside a wait of a thousand times its length no bar could be seen."""
    one_rank = EXAMPLES["one_rank"]()
    (row,) = one_rank.overlap.per_rank
    rows = [replace(row, input_wait_s=1000 * row.io_s)]
    split = replace(one_rank.overlap, mean=rows[0], per_rank=tuple(rows))
    found = overlap.draw_overlap(replace(one_rank, overlap=split).run)
    assert "whole input wait" not in [series["name"] for series in found.spec["data"]]
    assert "diamond" not in found.caption
    assert f"waited up to {seconds(1000 * row.io_s)}" in found.caption


@pytest.mark.parametrize("in_wait_s", [0.0, 1e-9, None])
def test_the_diamond_is_explained_without_a_bar_that_is_not_drawn(in_wait_s):
    one_rank = EXAMPLES["one_rank"]()
    rows = [replace(row, in_wait_s=in_wait_s) for row in one_rank.overlap.per_rank]
    split = replace(one_rank.overlap, mean=rows[0], per_rank=tuple(rows))
    found = overlap.draw_overlap(replace(one_rank, overlap=split).run)
    assert "diamond marks the whole input wait" in found.caption
    assert "orange" not in found.caption.lower()
    assert ("not known" in found.caption) == (in_wait_s is None)


@pytest.mark.parametrize("name", EXAMPLES)
def test_lines_are_compared_where_there_are_several(name):
    """Stripes over all ranks, and files one after the other, need more than one line."""
    if (run := example(name)).timeline is not None and drawn(name)["heatmap"].spec:
        grouped = len(run.timeline.row_labels) < run.timeline.ranks
        assert ("per group of neighbouring ranks" in drawn(name)["heatmap"].caption) == grouped
        assert ("One line per rank" in drawn(name)["heatmap"].caption) != grouped
    for key, words in (("heatmap", "all ranks at once"), ("filemap", "one file after the other")):
        if figure := drawn(name)[key].spec and drawn(name)[key]:
            lines = len(figure.spec["data"][0]["y"])
            assert (words in figure.caption) == (lines > 1)


@pytest.mark.parametrize("name", EXAMPLES)
def test_phases_are_introduced_by_those_that_the_run_has(name):
    run, figure = example(name), drawn(name)["phases"]
    if run.phases is None:
        return
    introduction = figure.caption.partition(" follow on one another")[0].lower()
    named = introduction.replace(" and ", ", ").split(", ")
    assert named == [phase.name for phase in run.phases.stages]
    assert ("checkpoints" in figure.caption) == bool(run.phases.checkpoints)


@pytest.mark.parametrize("name", EXAMPLES)
def test_steps_in_the_two_tables_are_all_steps(name):
    run = example(name)
    if run.perstep is None:
        return
    apart = int((run.perstep.kind != "").sum())
    caption = steps.draw_each_step(run).caption
    assert not caption or ("in the table below" in caption) == (apart > 0)


def test_a_profile_alone_gives_one_reason_for_all_that_needs_a_log():
    made = EXAMPLES["profile_only"]()
    run = replace(made, trace=replace(made.trace, logs=())).run
    found = [f for f in page_of(run).figures if f.empty_reason and f.section != "Input and compute"]
    assert len(found) > 10
    assert {f.empty_reason for f in found} == {_NO_LOG}
    words = " ".join(f"{f.caption} {f.empty_reason}" for f in page_of(run).figures)
    assert "DXT" not in words
    assert "±" not in words
    cells = [cell for f in page_of(run).figures if f.table for row in f.table.rows for cell in row]
    assert seconds(None) not in cells


@pytest.mark.parametrize("name", EXAMPLES)
def test_figures_of_one_reason_stand_together(name):
    page = page_of(example(name))
    reasons = [reason for reason, _ in _list_missing(page.figures)]
    assert len(reasons) == len(set(reasons))
    assert sum(len(group) for _, group in _list_missing(page.figures)) == len(page.figures)


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_column_of_the_files_says_nothing(name):
    run, table = example(name), drawn(name)["files"].table
    if table is None:
        return
    titles = [column.title for column in table.columns]
    known = any(row.ranks is not None for row in run.files.rows)
    assert ("ranks" in titles) == (known and len(run.trace.ranks) != 1)
    if "Lustre stripes" in titles:
        assert any(row[-1] for row in table.rows)
    assert not any(
        any(part.stripe_count > 0 for part in row.stripes) for row in run.files.rows
    ) or ("Lustre stripes" in titles or len(run.files.rows) > len(table.rows))


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_table_has_a_column_of_dashes(name):
    """What was recorded of no row is said once, in words."""
    for figure in drawn(name).values():
        for i, column in enumerate(figure.table.columns if figure.table else ()):
            said = any(row[i] is not None for row in figure.table.rows) or not figure.table.rows
            assert said, (figure.id, column.title)


@pytest.mark.parametrize("name", EXAMPLES)
def test_captions_speak_of_what_is_there(name):
    """Of the columns that the table has, and of waits where some were recorded."""
    figures, table = drawn(name), drawn(name)["each-step"].table
    titles = {column.title for column in table.columns} if table else set()
    caption = figures["each-step"].caption
    for title, words in (("hidden", "+ hidden"), ("of it I/O", "Of it I/O")):
        assert (words in caption) == (title in titles)
    for key in ("overlap", "steps"):
        legend = [series.get("name") for series in (figures[key].spec or {"data": []})["data"]]
        waits = any("input wait" in (series or "") for series in legend)
        assert waits or "diamond" not in figures[key].caption
        assert waits or "range is the input wait" not in figures[key].caption
    diamonds = [s for s in (figures["overlap"].spec or {"data": []})["data"] if "mode" in s]
    assert all(any(series["x"]) for series in diamonds)


def test_times_of_a_step_are_rounded_once():
    """Rounded to four digits and then to three, 241 ms were 242 ms in the other table."""
    measured = np.array([0.24146, 0.2415, 8.0952e-3, 0.0560004, 1.2345678])
    cells = steps._list_seconds(measured)
    assert [seconds(cell) for cell in cells] == [seconds(value) for value in measured]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_file_that_was_not_read_has_no_empty_reads(name):
    """A dash there would say that the reads were not recorded."""
    figure = drawn(name)["files"]
    titles = [column.title for column in figure.table.columns] if figure.table else []
    for row in figure.table.rows if figure.table else ():
        if row[titles.index("reads")] == 0:
            assert row[titles.index("reads of 0 bytes")] == 0
    cut = any("\N{HORIZONTAL ELLIPSIS}" in row[0] for row in figure.table.rows) if titles else False
    assert not cut or "are cut in the middle" in figure.caption


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_orders_of_operations_add_up(name):
    figure = drawn(name)["access"]
    if figure.table is None:
        return
    parts = len(figure.spec["data"])
    for counts in zip(*(row[1:] for row in figure.table.rows), strict=True):
        assert counts[0] == sum(counts[1 : 1 + parts])
    assert [row[0] for row in figure.table.rows[1 : 1 + parts]] == [
        bars["name"] for bars in figure.spec["data"]
    ]
    assert all(set(row[1:]) != {None} for row in figure.table.rows)  # no row of dashes
