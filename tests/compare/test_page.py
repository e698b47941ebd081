from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from tests import DATA
from tests.makers.comparisons import EXAMPLE_COMPARISONS, repeats, timed
from tests.report.test_html import parsed
from vanidl.cli import main
from vanidl.compare import Comparison, Sample, Side, compare
from vanidl.compare.figures.registry import FIGURES
from vanidl.compare.json import make_object
from vanidl.compare.page import _merge_warnings, render_comparison, write_comparison
from vanidl.compare.text import render_text, write_headline
from vanidl.model.warnings import Notice
from vanidl.report import page as page_module

LIMIT = 6_000_000
PFS = [str(DATA / "torch_pfs_workers0"), str(DATA / "torch_pfs_workers4")]


@cache
def example(name: str) -> Comparison:
    return EXAMPLE_COMPARISONS[name]()


@pytest.mark.parametrize("name", EXAMPLE_COMPARISONS)
def test_page_of_every_comparison(name):
    text = render_comparison(example(name))
    page = parsed(text)
    assert len(text.encode("utf-8", "backslashreplace")) < LIMIT
    names = [tag for tag, _ in page.tags]
    assert names.count("h1") == 1
    shown = [figure for figure in FIGURES if figure(example(name)).applies]
    assert names.count("figure") == len(shown) >= len(FIGURES) - 1  # of a ceiling
    assert names.count("script") == 1 + len(page_module.SCRIPTS)  # the data, and our own
    assert not set(names) & {"img", "link", "iframe", "object", "embed", "base", "svg", "b"}
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    levels = [int(n[1]) for n in names if n in ("h1", "h2", "h3")]
    assert all(b - a <= 1 for a, b in pairwise(levels))


@pytest.mark.parametrize("name", EXAMPLE_COMPARISONS)
def test_json_and_text_of_every_comparison(name):
    result = json.loads(json.dumps(make_object(example(name)), allow_nan=False))
    assert result["metrics"] == result["comparisons"][0]["metrics"]
    for metric in result["metrics"].values():
        assert {"a", "b", "ratio", "low", "high", "verdict"} <= set(metric)
    text = render_text(example(name))
    assert text.replace("\n", "").isprintable()
    assert result["headline"].split(".")[0] in text.replace("\n", " ")


def test_a_warning_of_both_sides_is_said_once_without_their_files():
    def side(letter: str, *places: str) -> Side:
        full = example("one_each").sides[0].samples[0]
        notices = tuple(Notice("empty", f"/runs/{p}: 1 step is empty: so.", "info") for p in places)
        coverage = replace(full.results.coverage, warnings=notices)
        results = replace(full.results, coverage=coverage)
        return Side(letter, letter, (replace(full, path=f"/runs/{letter}", results=results),))

    both = compare([side("A", "A/tb/1.json"), side("B", "B/tb/2.json", "elsewhere/3.json")])
    assert _merge_warnings(both) == (
        ("empty", "A, B: 1 step is empty: so.", "info"),
        ("empty", "B: /runs/elsewhere/3.json: 1 step is empty: so.", "info"),
    )
    assert _merge_warnings(compare([side("A", "A/tb/1.json"), side("B")]))[0][1].startswith(
        "A: tb/1.json: "
    )


def test_hostile_names_arrive_as_text():
    page = parsed(render_comparison(example("hostile")))
    assert any("<script>alert(1)</script>" in part for part in page.text)
    assert "{{7*7}}" in " ".join(page.text)
    specs = json.dumps([f["spec"] for f in json.loads(page.scripts[0])["figures"]])
    assert "<" not in specs.replace("<extra>", "").replace("</extra>", "")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("one_each", ["throughput as A (one run each: no interval)."]),
        ("slower", ["98 % interval", "5 pairs): worse."]),
        ("alike", ["No difference in throughput shown", "not proof of none"]),
        ("steps_not_recorded", ["B has 31.5 times the run time of A (one run each"]),
        ("wall_time_only", ["times the wall time of A (98 %", "3 pairs): worse."]),
        (
            "two_pairs",
            ["2 pairs, too few for a verdict; seen: B had 1.9", " times the wall time of A (98 %"],
        ),
        ("wait_not_recorded", ["input wait and lost to input were not recorded in B"]),
        ("unlike", ["recorded in part (truncated)", "device kernels", "40 to 300 profiled steps"]),
        (
            "three",
            ["B has 24 % more throughput than A (98 %", "C has 12 % less throughput than A (98 %"],
        ),
    ],
)
def test_headline(name, words):
    said = str(write_headline(example(name)))
    for part in words:
        assert part in said


def test_nothing_recorded_on_one_side_is_said():
    comparison = compare([timed("A", [1.0]), timed("B", [None])])
    assert "Neither better nor worse" in write_headline(comparison).title


def test_too_few_runs_of_one_side():
    comparison = compare([timed("A", [1.0], paired=False), timed("B", [1.0, 2.0], paired=False)])
    assert "1 and 2 runs" in write_headline(comparison).title


@pytest.mark.parametrize(
    ("metric", "a", "b"),
    [
        ("input_wait_s", 15.858, 0.781),
        ("exposed_io_s", 10.883, 0.684),
        ("step_time_s", 0.4149, 0.1738),
        ("step_time_mean_s", 0.4235, 0.1941),
        ("hidden_io_s", 0.0, 6.64),
    ],
)
def test_recorded_pair(capsys, metric, a, b):
    assert main(["compare", *PFS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["metrics"][metric]
    assert (found["a"], found["b"]) == pytest.approx((a, b), rel=0.01)
    assert (found["low"], found["high"]) == (None, None)
    assert found["verdict"] == "no interval"
    assert "one run each" in found["note"]


def test_recorded_pair_agrees_with_the_summaries(capsys):
    main(["compare", *PFS, "--json"])
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    for side, path in zip("ab", PFS, strict=True):
        main(["summary", path, "--json"])
        summary = json.loads(capsys.readouterr().out)
        known = {
            "step_time_s": summary["steps"]["median_s"],
            "step_time_mean_s": summary["steps"]["mean_s"],
            "throughput": summary["throughput"]["steps_per_s"],
            "input_wait_s": summary["overlap"]["mean"]["input_wait_s"],
            "lost_to_input_s": summary["overlap"]["lost_to_input_s"],
            "exposed_io_s": summary["overlap"]["mean"]["exposed_s"],
            "hidden_io_s": summary["overlap"]["mean"]["hidden_s"],
            "io_time_s": summary["io"]["time"]["per_rank_mean_s"],
            "bytes_read": summary["io"]["bytes_read"],
            "bytes_written": summary["io"]["bytes_written"],
            "requests": summary["io"]["ops"],
            "request_size_mean": summary["io"]["sizes"]["mean"],
            "run_time_s": summary["job"]["run_time_s"],
        }
        for name, value in known.items():
            assert metrics[name][side] == pytest.approx(value), name


def test_page_from_the_command_line(capsys, tmp_path):
    target = tmp_path / "c.html"
    assert main(["compare", *PFS, "-o", str(target), "--label", "none", "--label", "four"]) == 0
    assert "B has 2.18 times the throughput of A" in capsys.readouterr().out
    text = target.read_text(encoding="utf-8")
    assert len(text) < LIMIT
    assert "<title>Comparison: none and four</title>" in text


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["missing.darshan", "other.darshan"], 1, "missing.darshan"),
        ([PFS[0]], 2, "two or more runs"),
        ([*PFS, "--label", "a", "--label", "b", "--label", "c"], 2, "--label: expected at most 2"),
        ([PFS[0]] * 27, 2, "at most 26"),
        ([*PFS, "-o", "/missing/folder/c.html"], 1, "cannot write the report"),
    ],
)
def test_one_clear_line(capsys, arguments, status, words):
    assert main(["compare", *arguments]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert words in err


def test_written_page_is_the_rendered_one(tmp_path):
    write_comparison(example("hostile"), tmp_path / "c.html")
    text = (tmp_path / "c.html").read_text(encoding="utf-8")
    assert text == render_comparison(example("hostile"))


def test_stalls_that_the_median_does_not_see_make_the_headline():
    """Few steps that wait long in every run: the throughput says what the median cannot."""
    a = repeats("A", 0.62)
    b = replace(repeats("A", 0.62), letter="B")
    faster = tuple(_with_throughput(s, 3 * (1 + i / 100)) for i, s in enumerate(b.samples))
    comparison = compare([a, replace(b, samples=faster)])
    assert write_headline(comparison).title.startswith("B has 3.06 times the throughput of A (98 %")
    assert write_headline(comparison).title.endswith("5 pairs): better.")
    assert "Median step time: no difference shown" in str(write_headline(comparison))


def _with_throughput(sample: Sample, factor: float) -> Sample:
    overlap = sample.account.overlap
    rows = tuple(replace(row, window_s=row.window_s / factor) for row in overlap.per_rank)
    return replace(sample, account=replace(sample.account, overlap=replace(overlap, per_rank=rows)))
