"""Laws that every loader of the registry keeps."""

from __future__ import annotations

import gzip
import json
import pickle

import pytest

pytest.importorskip("h5py", reason="h5py is not installed")
torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.profiler import ProfilerActivity, profile

from vanidl_loaders.cli import main
from vanidl_loaders.errors import UsageError
from vanidl_loaders.loader.loader import Settings, Spanned, Waited, name_span
from vanidl_loaders.loader.registry import LOADERS, find_loader, open_loader
from vanidl_loaders.peers.shards import convert

WORKLOAD = {"decoded": "cosmoflow"}
"""Loader -> the workload that it can read, where that is not ptycho."""
PREPARED = {"decoded": "encode"}
"""Loader -> the command that makes its input from the samples, beside them."""
FORMAT = {"streaming": "mds", "webdataset": "tar"}
"""Loader -> the format of its own that the samples are converted to."""
NAMES = [
    pytest.param(
        name,
        marks=[  # WebDataset leaves a shard open when its stream is left early
            pytest.mark.filterwarnings("ignore::ResourceWarning"),
            pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
        ]
        if name == "webdataset"
        else [],
    )
    for name in sorted(LOADERS)
]


@pytest.fixture(params=NAMES)
def loader(request, ptycho, small):
    if request.param == "decoded":
        pytest.importorskip("numba", reason="numba is not installed")
    if request.param in FORMAT:
        pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    workload = WORKLOAD.get(request.param)
    samples = small(workload) if workload else ptycho
    if request.param in PREPARED:
        folder = samples.folder
        assert main([PREPARED[request.param], str(folder), str(folder / "encoded")]) == 0
    if request.param in FORMAT:
        convert(samples, FORMAT[request.param])
    opened = open_loader(request.param, samples, Settings(batch=4, epochs=2))
    yield opened
    opened.close()


def test_len_is_the_number_of_steps_and_stats_count_them(loader):
    for epoch in range(2):
        loader.set_epoch(epoch)
        assert sum(1 for _ in loader) == len(loader)
    stats = loader.stats()
    assert stats.steps == 2 * len(loader)
    assert stats.loads + stats.hits > 0
    assert stats.nbytes > 0
    assert stats.requests > 0
    assert min(stats.exposed_wait_s) >= 0


def test_next_is_inside_the_span_that_profiles_show(loader, tmp_path):
    path = tmp_path / "trace.json"
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in loader:
            torch.ones(8).cumsum(0)
    profiler.export_chrome_trace(str(path))
    events = json.loads(path.read_text())["traceEvents"]
    spans = [
        e
        for e in events
        if e.get("cat") == "user_annotation"
        and e["name"].startswith("enumerate(DataLoader)#")
        and e["name"].endswith(".__next__")
    ]
    assert len(spans) - len(loader) in (0, 1)  # PyTorch marks the call that ends an epoch, too
    computed = [e["ts"] for e in events if e.get("name") == "aten::cumsum"]
    assert len(computed) == len(loader)  # what a program does with a batch lies in no span
    assert not any(s["ts"] <= t < s["ts"] + s["dur"] for s in spans for t in computed)


def test_a_state_survives_pickling_and_an_epoch_can_be_repeated(loader):
    loader.set_epoch(1)
    first = [batch["sample"].tolist() for batch in loader]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    assert state["epoch"] == (2 if getattr(loader, "advances", False) else 1)
    loader.load_state_dict(state)
    assert first


MADE_UP = """
from vanidl_loaders.baseline import SampleDataset
from vanidl_loaders.loader.batches import collate
from vanidl_loaders.loader.epochs import EpochLoader
from vanidl_loaders.loader.loader import Counts

NAME, HELP = "made-up", "samples in order"

def add_arguments(parser):
    parser.add_argument("--greeting", default="hello")

def open_loader(samples, settings, options):
    return InOrder(samples, settings)

class InOrder(EpochLoader):
    def __init__(self, samples, settings):
        steps, identity = settings.steps(samples), settings.identity(samples)
        super().__init__(settings, Counts(), steps, identity)
        self._dataset = SampleDataset(samples, self._counts)

    def _batches(self, epoch, start):
        size = self._settings.batch
        for low in range(start * size, len(self._dataset), size):
            ids = range(low, min(low + size, len(self._dataset)))
            yield collate([self._dataset[sample] for sample in ids])
"""


def test_what_cannot_be_loaded_is_listed_with_what_installs_it(monkeypatch, capsys):
    monkeypatch.setitem(LOADERS, "made-up", "torch.nothing_of_this_name")
    assert main(["list"]) == 0
    said = capsys.readouterr().out
    assert "made-up     not available: expected the package torch, found none: pip install" in said


def test_a_loader_is_a_module_and_a_line_of_the_registry(ptycho, tmp_path, monkeypatch, capsys):
    (tmp_path / "made_up_loader.py").write_text(MADE_UP)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(LOADERS, "made-up", "made_up_loader")
    line = ["--data", str(ptycho.folder), "--loader", "made-up", "--greeting", "hi", "--batch", "4"]
    assert main(["train", *line]) == 0
    assert main(["bench", *line, "--repeat", "1"]) == 0
    assert main(["list"]) == 0
    assert "samples in order" in capsys.readouterr().out
    loader = open_loader("made-up", ptycho, Settings(batch=4))
    whole = [batch["sample"].tolist() for batch in loader]
    assert whole == [list(range(21))[low : low + 4] for low in range(0, 21, 4)]
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    resumed = open_loader("made-up", ptycho, Settings(batch=4))
    resumed.load_state_dict(state)
    assert [batch["sample"].tolist() for batch in resumed] == whole[1:]
    assert resumed.stats().steps == 5


def test_an_unknown_loader_or_option_is_refused(ptycho):
    with pytest.raises(UsageError, match="baseline"):
        find_loader("nothing")
    with pytest.raises(UsageError, match="option"):
        open_loader("baseline", ptycho, Settings(), {"nothing": 1})


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"epochs": 0}, {"workers": -1}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(UsageError, match="expected"):
        Settings(**wrong)


def test_waits_are_counted_once_a_step():
    waits = []
    assert list(Waited(iter("abc"), waits)) == ["a", "b", "c"]
    assert len(waits) == 3


def test_spanned_counts_and_marks(tmp_path):
    waits = []
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        assert list(Spanned(iter("ab"), waits, name="Mine")) == ["a", "b"]
    profiler.export_chrome_trace(str(tmp_path / "trace.json.gz"))
    with gzip.open(tmp_path / "trace.json.gz", "rt") as file:
        names = [e.get("name") for e in json.load(file)["traceEvents"]]
    assert names.count(name_span("Mine")) == 3
    assert name_span("Mine") == "enumerate(DataLoader)#Mine.__next__"
    assert len(waits) == 2


def test_memory_of_batches_is_used_again_only_when_nobody_has_it():
    from vanidl_loaders.loader.batches import KEPT_MOST, BatchMemory

    memory = BatchMemory((3,), "<f4")
    first = torch.from_numpy(memory.rows(5))
    at = first.data_ptr()
    part = first[1:]  # keeps it, too
    del first
    others = [torch.from_numpy(memory.rows(4)) for _ in range(3)]
    assert at not in {each.data_ptr() for each in others}
    del part
    again = torch.from_numpy(memory.rows(2))
    assert (again.data_ptr(), again.shape) == (at, (2, 3))
    larger = torch.from_numpy(memory.rows(9))
    assert larger.shape == (9, 3)
    many = [torch.from_numpy(memory.rows(9)) for _ in range(3 * KEPT_MOST)]
    assert len({each.data_ptr() for each in (*many, *others, again, larger)}) == len(many) + 5
    assert len(memory._kept) == KEPT_MOST
