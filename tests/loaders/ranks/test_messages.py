from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from vanidl_loaders.errors import LoadersError, MissingError, UsageError
from vanidl_loaders.ranks import messages
from vanidl_loaders.ranks.world import World


class LoneCommunicator:
    """Stands for MPI.COMM_WORLD of one process."""

    def Get_rank(self):
        return 0

    def Get_size(self):
        return 1


def test_backends_that_do_not_fit_the_launcher_are_refused(monkeypatch):
    monkeypatch.setattr(messages, "get_communicator", LoneCommunicator)
    monkeypatch.setattr(messages, "_require_threads", lambda: None)
    assert messages.open_transport(World(), "mpi").world.ranks == 1
    for backend, world in (("mpi", World(0, 2)), ("auto", World(1, 2, 1, 2, "mpi"))):
        with pytest.raises(UsageError, match="mpiexec"):
            messages.open_transport(world, backend)
    with pytest.raises(UsageError, match="backend"):
        messages.open_transport(World(0, 2), "ftp")


def test_nccl_without_a_gpu_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MissingError, match="CUDA device"):
        messages.open_transport(World(0, 2), "nccl")


@pytest.mark.parametrize("world", [World(), World(1, 4, 1, 4, "arguments")])
def test_ranks_that_nothing_connects_are_alone(world):
    transport = messages.launched_transport(world)
    assert (transport.connected, transport.mpi, transport.world) == (False, False, world)
    assert transport.gather("own") == ["own"]
    transport.start([], []).wait()
    with pytest.raises(LoadersError, match="1 to send"):
        transport.start([(1, np.zeros(1))], [])
    transport.close()


def test_long_messages_go_in_parts(monkeypatch):
    monkeypatch.setattr(messages, "MOST_MESSAGE_NBYTES", 7)
    array = np.arange(10, dtype=">i4").reshape(5, 2)
    parts = list(messages._split_messages([(3, array), (1, array[:0])]))
    assert [(rank, len(each)) for rank, each in parts] == [(3, 7)] * 5 + [(3, 5)]
    assert b"".join(each.tobytes() for _, each in parts) == array.tobytes()
