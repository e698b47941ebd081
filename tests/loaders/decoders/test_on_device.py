"""Batches that a device decodes, without one: in Triton's interpreter, copies that are late."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("numba", reason="numba is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from vanidl_loaders.decoders import CosmoFlow, DeepCam, Lossless
from vanidl_loaders.decoders.container import pack
from vanidl_loaders.decoders.dataset import DecodedLoader, Verdict, read_batch
from vanidl_loaders.decoders.folders import sample_path, write_whole
from vanidl_loaders.decoders.staging import HostBuffer, HostTransfer, Ring
from vanidl_loaders.errors import InputError
from vanidl_loaders.loader.loader import Settings

SAMPLES = 7


class Late:
    """Copies as late as is allowed: when someone waits for one, or work is ordered behind it."""

    device = torch.device("cpu")

    def __init__(self):
        self.waited = 0

    def begin(self, host):
        return LateCopy(host, self)


class LateCopy:
    def __init__(self, host, of):
        self.bytes, self._host, self._of = torch.full_like(host, 0xEE), host, of

    def wait_for_copy(self):
        self._end()

    def synchronize(self):
        self._of.waited += 1
        self._end()

    def _end(self):
        if self._host is not None:
            self.bytes.copy_(self._host)
        self._host = None


class SampleIds:
    """What the loader asks of a set of samples."""

    def __len__(self):
        return SAMPLES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoded")
    for number in range(SAMPLES):
        write_whole(sample_path(folder, number), pack(sample(number)))
    return folder


def sample(number):
    random = np.random.default_rng(number)
    walk = np.cumsum(random.normal(size=(1, 2, 24)), -1).astype(np.float32) + number
    return {
        "counts": CosmoFlow().encode(random.poisson(number + 1, (70, 4)).astype(np.int16)),
        "field": DeepCam(channels="first").encode(walk),
        "mask": Lossless().encode(random.integers(0, 2 + number, (4, 9))),
        "target": Lossless().encode(random.normal(size=300).astype(np.float32)),
        "label": Lossless().encode(np.asarray(number, np.int16)),
    }


def loader(folder, transfer, **settings):
    return DecodedLoader(SampleIds(), Settings(batch=2, **settings), folder, transfer=transfer)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_cpus_however_late_the_copies(folder, workers):
    late = Late()
    on_device, on_cpu = loader(folder, late, workers=workers), loader(folder, None)
    for epoch in range(2):
        for each in (on_device, on_cpu):
            each.set_epoch(epoch)
        for found, wanted in zip(on_device, on_cpu, strict=True):
            assert set(found) == set(wanted)
            for name, tensor in wanted.items():
                assert found[name].numpy().tobytes() == tensor.numpy().tobytes(), name
    assert late.waited > 0  # buffers were used again, behind their copies


def damage(folder, number, name):
    """Another byte in a section, far from the description."""
    path = sample_path(folder, number)
    content = bytearray(path.read_bytes())
    section = sample(number)[name].sections["entries" if name == "counts" else "keys"].tobytes()
    at = content.index(section)
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.fixture
def damaged(folder, tmp_path):
    import shutil

    shutil.copytree(folder, tmp_path / "encoded")
    for number in (1, 4):
        damage(tmp_path / "encoded", number, "counts")
    return tmp_path / "encoded"


def test_damage_is_told_behind_the_epoch_and_names_the_samples(damaged):
    batches = iter(loader(damaged, HostTransfer(), shuffle=False))
    for _ in range(4):
        next(batches)
    with pytest.raises(InputError, match=r"CRC-32 in samples \[1, 4\]: encode"):
        next(batches)


def test_damage_is_told_by_close_and_when_asked_for(damaged):
    opened = loader(damaged, HostTransfer(), shuffle=False)
    batches = iter(opened)
    next(batches)
    with pytest.raises(InputError, match=r"samples \[1\]"):
        opened.verify()
    opened.verify()  # nothing new since
    next(batches)
    next(batches)
    with pytest.raises(InputError, match=r"samples \[4\]"):
        opened.close()


def test_damage_of_an_iteration_that_was_left_is_told_before_the_next(damaged):
    opened = loader(damaged, HostTransfer(), shuffle=False)
    next(iter(opened))
    with pytest.raises(InputError, match=r"samples \[1\]"):
        next(iter(opened))


def test_the_device_is_waited_for_once_an_epoch(folder, monkeypatch):
    """Whatever brings a tensor's values to the host waits for the device: once, behind the last."""
    waits = []
    seen = Verdict.require_good
    monkeypatch.setattr(Verdict, "require_good", lambda self: (waits.append(1), seen(self)))
    opened = loader(folder, Syncless(), shuffle=False)
    for number, _ in enumerate(opened):
        assert not waits, number
    assert waits == [1]


class Syncless(HostTransfer):
    """Bytes whose values may not be looked at by the host between kernels."""

    def begin(self, host):
        copied = super().begin(host)
        copied.bytes = copied.bytes.as_subclass(Unseen)
        return copied


class Unseen(torch.Tensor):
    """A tensor that stands for one on a device: reading a value of it is an error."""

    def tolist(self):
        raise AssertionError("the host waited for the device")

    item = __bool__ = __int__ = __float__ = tolist


def test_bytes_are_read_straight_into_the_buffer_and_stay_there(folder):
    buffer = HostBuffer()
    paths = [sample_path(folder, number) for number in range(3)]
    for _ in range(2):
        buffer.clear()
        read_batch(paths, buffer)
        held = buffer.bytes.tobytes()
        for path in paths:
            assert held.count(path.read_bytes()) == 1
        # What is put behind the containers: indices, and the rows of tiles.
        assert buffer.end < sum(path.stat().st_size + 64 for path in paths) + 4096
    memory = buffer.bytes.ctypes.data
    buffer.clear()
    read_batch(paths, buffer)
    assert buffer.bytes.ctypes.data == memory


def test_a_ring_hands_a_buffer_out_behind_the_copy_from_it():
    late, ring = Late(), Ring(1)
    first = ring.take()
    at = first.reserve(64)
    first.bytes[at : at + 64] = 7
    copied = late.begin(first.used)
    ring.give_back(first, copied)
    assert ring.take() is first
    first.bytes[:] = 9
    assert copied.bytes.tolist() == [7] * 64
