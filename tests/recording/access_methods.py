"""Ways to use a file that Darshan sees in part, wrongly or not at all: one function a way."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
from pathlib import Path

import numpy as np

VALUES, BLOCK = 100_000, 65_536


def np_load(folder: Path) -> None:
    """NumPy reads through a duplicate of the descriptor and fread."""
    np.load(folder / "a.npy")


def np_fromfile(folder: Path) -> None:
    """As np_load, without a header."""
    np.fromfile(folder / "a.bin", np.uint8)


def np_memmap(folder: Path) -> None:
    """Pages are read by the kernel: no call at all."""
    np.array(np.load(folder / "a.npy", mmap_mode="r"))


def raw_mmap(folder: Path) -> None:
    """The same without a header."""
    with (folder / "a.bin").open("rb") as file:
        bytes(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def npz(folder: Path) -> None:
    """zipfile uses read(): all is seen."""
    np.load(folder / "a.npz")["a"]


def threads(folder: Path) -> None:
    """Four threads pread one descriptor."""
    descriptor = os.open(folder / "a.bin", os.O_RDONLY)

    def read(k: int) -> None:
        for i in range(200):
            os.pread(descriptor, 4096, (4 * i + k) * 1024)

    workers = [threading.Thread(target=read, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def two_descriptors(folder: Path) -> None:
    """Two descriptors of one file take turns with read()."""
    pair = [os.open(folder / "a.bin", os.O_RDONLY) for _ in range(2)]
    for _ in range(7):
        for descriptor in pair:
            os.read(descriptor, 1000)


def two_descriptors_pread(folder: Path) -> None:
    """The same with pread, which brings its offset."""
    pair = [os.open(folder / "a.bin", os.O_RDONLY) for _ in range(2)]
    for i in range(7):
        for descriptor in pair:
            os.pread(descriptor, 1000, 1000 * i)


def epochs(folder: Path) -> None:
    """A file opened ten times, one after another."""
    for _ in range(10):
        with (folder / "a.bin").open("rb") as file:
            while file.read(BLOCK):
                pass


def many_files(folder: Path) -> None:
    """More files than a small limit of records allows."""
    for i in range(300):
        (folder / f"many-{i}.bin").write_bytes(bytes(100))
    for i in range(300):
        (folder / f"many-{i}.bin").read_bytes()


def many_reads(folder: Path) -> None:
    """More operations than the trace buffer holds unless it is raised."""
    descriptor = os.open(folder / "a.bin", os.O_RDONLY)
    for i in range(100_000):
        os.pread(descriptor, 64, i)


def stdio(folder: Path) -> None:
    """fopen and fread, as C libraries use them."""
    libc = ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = libc.fopen(os.fsencode(folder / "a.bin"), b"rb")
    libc.fread(ctypes.create_string_buffer(BLOCK), 1, BLOCK, ctypes.c_void_p(file))
    libc.fclose(ctypes.c_void_p(file))


def fsync(folder: Path) -> None:
    """Writes that are made safe one by one."""
    descriptor = os.open(folder / "out.bin", os.O_WRONLY | os.O_CREAT)
    for _ in range(20):
        os.write(descriptor, bytes(100_000))
        os.fsync(descriptor)


def prepare(folder: Path) -> None:
    """The files that the others read; to be run without Darshan."""
    np.save(folder / "a.npy", np.arange(VALUES))
    np.savez(folder / "a.npz", a=np.arange(VALUES))
    (folder / "a.bin").write_bytes(bytes(8 * VALUES))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
