"""The papers' studies: what they count points the documents' way, whatever the machine does."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

from benchmarks.loaders.pls_accuracy import accuracy
from benchmarks.papers import decoders
from benchmarks.papers.run import STUDIES, select_parts
from benchmarks.papers.scheduled import count_loads
from benchmarks.papers.shuffling import count_exchange
from benchmarks.papers.study import Row


def test_plans_load_what_the_poster_says():
    rows = {(row.of, row.figure): row for row in count_loads(20_000)}
    assert all(row.agrees for row in rows.values())
    fewer = rows["plan", "fewer samples read than the DataLoader"].measured
    assert fewer == pytest.approx(1 / 0.15, rel=1e-3)  # N / (N - C)


def test_what_is_exchanged_grows_with_q():
    rows = list(count_exchange(ranks=16, samples=16 * 100))
    sent = [row.measured for row in rows]
    assert all(row.agrees for row in rows)
    assert sent == sorted(sent)
    assert sent[0] == 0


def test_partial_shuffling_brings_accuracy_back_where_local_loses_it():
    """Fewer epochs than the study's: the gap is wide by then."""
    whole, local, partial = (accuracy(q, 16, 6, 0) for q in (None, 0.0, 0.3))
    assert local < whole - 0.1
    assert partial - local > 0.8 * (whole - local)
    assert abs(accuracy(0.0, 16, 6, 0, "shuffled") - whole) < 0.02  # local suffices then


def test_local_shuffling_loses_more_with_more_workers():
    few, many = (accuracy(None, n, 6, 0) - accuracy(0.0, n, 6, 0) for n in (4, 16))
    assert many > few + 0.02


@pytest.mark.parametrize(("workload", "size"), [("cosmoflow", 64), ("deepcam", 192)])
def test_encoded_samples_are_as_much_smaller_as_the_paper_says(workload, size, tmp_path):
    pytest.importorskip("numba", reason="numba is not installed")
    nbytes = decoders.write_samples(tmp_path, workload, 1, size)
    rows = [row for row in decoders.compare_sizes(workload, nbytes) if row.agrees is not None]
    assert len(rows) == len(nbytes) - 1
    assert all(row.agrees for row in rows)
    if workload == "cosmoflow":  # gzip's are the smaller ones, and decompressed on the host
        assert nbytes["gzip"] < nbytes["decoded"] < nbytes["base"]


@pytest.mark.parametrize(("agrees", "said"), [(True, "yes"), (False, "no"), (None, "not judged")])
def test_a_row_says_whether_it_points_the_same_way(agrees, said):
    row = Row("V1", "steps", "2.45 times", 2.5, agrees, "{:.2f} times")
    assert str(row) == f"| V1 | steps | 2.45 times | 2.50 times | {said} |"


def test_parts_are_chosen_by_name_and_long_ones_left_out_of_small():
    every, small = (select_parts([], small) for small in (False, True))
    assert {name.partition(".")[0] for name, _ in every} == set(STUDIES)
    assert [name for name, part in every if not part.long] == [name for name, _ in small]
    assert len(small) < len(every)
    assert [name for name, _ in select_parts(["spatial.gigabytes"], small=True)] == [
        "spatial.gigabytes"
    ]
    with pytest.raises(SystemExit, match="no study or part 'tea'"):
        select_parts(["tea"], small=False)
