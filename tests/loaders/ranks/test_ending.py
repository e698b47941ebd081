from __future__ import annotations

import json
import os
import signal
import threading
import time

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.distributed import run as torchrun
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from vanidl_loaders.cli import main
from vanidl_loaders.errors import LoadersError
from vanidl_loaders.ranks import ending
from vanidl_loaders.ranks.messages import name_lost_ranks
from vanidl_loaders.ranks.world import World


@pytest.fixture
def agent():
    """The store of a torchrun with two ranks, and the environment that its ranks see."""
    store = torch.distributed.TCPStore("localhost", 0, is_master=True)
    yield {
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": "2",
    }
    del store  # its port is open until here


def test_a_rank_that_fails_waits_for_the_others_to_speak(agent):
    """Else torchrun ends them first: no line, and another exit status."""
    ended, late = [], threading.Event()

    def rank(number):
        if number:
            late.wait(60)
        ending._wait_for_others(agent, within_s=60)
        ended.append(number)

    ranks = [threading.Thread(target=rank, args=(number,)) for number in range(2)]
    for each in ranks:
        each.start()
    ranks[0].join(0.2)
    assert ended == []
    late.set()
    for each in ranks:
        each.join(60)
    assert sorted(ended) == [0, 1]


def test_it_does_not_wait_for_ever(agent):
    begin = time.monotonic()
    ending._wait_for_others(agent, within_s=0.1)
    assert time.monotonic() - begin < 60


def test_torchrun_shows_the_reason(tmp_path):
    path = tmp_path / "error.json"
    ending._tell_torchrun("expected data, found none", 2, {"TORCHELASTIC_ERROR_FILE": str(path)})
    shown = ProcessFailure(local_rank=0, pid=1, exitcode=2, error_file=str(path))
    failed = ChildFailedError("train", {0: shown})
    assert "traceback : expected data, found none" in str(failed)
    assert json.loads(path.read_text())["message"]["errorCode"] == 2


def test_a_rank_ends_with_its_launcher(monkeypatch):
    """First asked, then killed: a rank that waits for another in a library runs no handler."""
    sent, parents = [], iter([7, 7, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    ending._end_with(7)
    assert sent == [(os.getpid(), signal.SIGTERM), (os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (ChildFailedError("train", {0: ProcessFailure(0, 1, 2, "none")}), 2, ""),
        (ChildFailedError("train", {3: ProcessFailure(0, 1, -9, "none")}), 137, "rank 3 SIGKILL"),
        (SignalException("interrupted", signal.SIGINT), 130, ""),
    ],
)
def test_launch_ends_as_the_first_rank_that_failed(raised, status, said, monkeypatch, capsys):
    def run(options):
        assert (options.nproc_per_node, options.training_script) == ("2", "vanidl_loaders")
        assert options.training_script_args == ["train", "--data", "D"]
        raise raised

    monkeypatch.setattr(torchrun, "run", run)
    assert main(["launch", "--ranks", "2", "--", "train", "--data", "D"]) == status
    out, err = capsys.readouterr()
    assert not out
    assert len(err.splitlines()) == bool(said)
    assert all(word in err for word in said.split())


def test_launch_without_a_command_is_refused(capsys):
    assert main(["launch", "--ranks", "2"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_lost_rank_is_named_and_other_errors_stay():
    with (
        pytest.raises(LoadersError, match="on rank 1 that one ended"),
        name_lost_ranks(World(1, 2, 1, 2)),
    ):
        raise RuntimeError("[gloo/transport/tcp/pair.cc:537] Connection reset by peer\nmore")
    with pytest.raises(RuntimeError, match="mat1 and mat2"), name_lost_ranks(World(1, 2, 1, 2)):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_a_launcher_that_ends_the_rest_changes_no_status_that_is_decided(monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    try:
        monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
        ending.keep_status()
        assert signal.getsignal(signal.SIGTERM) == before
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
        ending.keep_status()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
