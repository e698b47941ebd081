from __future__ import annotations

import pytest

import vanidl
from tests import DATA
from vanidl.readers.run_folder import AB_FILE

PAIR = [DATA / "torch_pfs_workers0", DATA / "torch_pfs_workers4"]


def test_frame_holds_each_runs_own_numbers():
    frame = vanidl.compare_runs(*PAIR).frame().set_index("quantity")
    for side, path in zip("ab", PAIR, strict=True):
        run = vanidl.open_run(path)
        assert frame.loc["input_wait_s", side] == run.overlap.per_rank[0].input_wait_s
        assert frame.loc["bytes_read", side] == run.summary.bytes_read
    ratio = frame.loc["input_wait_s", "ratio"]
    assert ratio == pytest.approx(frame.loc["input_wait_s", "b"] / frame.loc["input_wait_s", "a"])
    assert set(frame.verdict) <= {"no interval", "not recorded", "not comparable"}  # one run each


def test_a_row_a_quantity_and_side():
    compared = vanidl.compare_runs(PAIR[0], PAIR[1], PAIR[0], labels=("none", "four", "again"))
    frame = compared.frame()
    assert list(frame.side.unique()) == ["four", "again"]
    assert not frame.duplicated(["side", "quantity"]).any()
    assert (frame[frame.side == "again"].ratio.dropna() == 1).all()


def test_headline_is_that_of_the_command(capsys):
    from vanidl.cli import main

    assert main(["compare", *map(str, PAIR)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert " ".join(vanidl.compare_runs(*PAIR).headline.split()) in text


@pytest.mark.parametrize(
    ("paths", "labels", "words"),
    [
        ([], (), "at least one and at most 26 runs, found 0"),
        (PAIR[:1], (), "expected two or more runs"),
        (PAIR, ("a", "b", "c"), "expected at most 2, found 3"),
        (PAIR * 14, (), "found 28"),
        ([DATA], ("a", "b", "c"), "expected two or more runs to compare, or one folder"),
    ],
)
def test_what_cannot_be_compared_is_said(paths, labels, words):
    with pytest.raises(vanidl.UsageError, match=words):
        vanidl.compare_runs(*paths, labels=labels)


def test_a_folder_of_both_sides_stands_alone(tmp_path):
    (tmp_path / AB_FILE).write_text("{}")
    with pytest.raises(vanidl.UsageError, match="holds both sides of an A/B"):
        vanidl.compare_runs(tmp_path, PAIR[0])
    with pytest.raises(vanidl.UsageError, match="--label: expected at most 2, found 3"):
        vanidl.compare_runs(tmp_path, labels=("a", "b", "c"))


def test_a_comparison_is_one_line():
    compared = vanidl.compare_runs(DATA / "torch_pfs_workers0", DATA / "torch_pfs_workers4")
    assert len(repr(compared).splitlines()) == 1
    assert "B has 2.18 times the throughput" in repr(compared)
