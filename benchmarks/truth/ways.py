# ruff: noqa: E501 - the programs below are lines of code
"""Twenty and more ways to read and eight to write: does a tracer see every byte, by file?

    python -m benchmarks.truth.ways [--tracer vanidl dftracer] [--only WAY...]

Each way runs in a process of its own, twice, on files that another process has made. The truth of
ways that read or write whole files once is their size. Of the others it is what the kernel counted
around the second turn (rchar or wchar), twice: by then everything is imported; where they use stdio
of C, that reads ahead, so it is the most that they can have got, and the size the least. What is
read of a mapping is in no call, so its truth is 0. A way whose package is not installed is left out, and said.
The exit status is 1 where vanidl's own tracer has seen other bytes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import vanidl
from vanidl.record import record

ACCOUNT, SIZE, STDIO, NOTHING = "account", "size", "stdio", "nothing"
READ, WRITTEN = "bytes_read", "bytes_written"
TURNS = 2

PRELUDE = """\
import io, os, pickle, struct, sys, tarfile, threading
import numpy as np
def noise(*shape): return np.random.default_rng(0).integers(0, 255, shape, np.uint8)
"""
MEASURE = """
def moved(key): return int(open("/proc/self/io").read().split(key + ": ")[1].split()[0])
def once():
    first = moved(KEY); own = moved(KEY) - first; begin = moved(KEY)
    act()
    return moved(KEY) - begin - own
turns = [once() for _ in range(2)]
os.write(2, b"%d\\n" % turns[1])
"""


@dataclass(frozen=True)
class Way:
    """One way: what makes its files, what it imports, what it does, and how its truth is known."""

    act: str
    make: str = ""
    imports: str = ""
    package: str = ""
    truth: str | int = ACCOUNT  # a number: so many bytes, which strace showed

    def program(self, kind: str) -> str:
        """The script of the process that is recorded."""
        body = "".join(f"    {line}\n" for line in self.act.split("\n"))
        key = "rchar" if kind == READ else "wchar"
        return f"{PRELUDE}{self.imports}\nKEY = {key!r}\ndef act():\n{body}{MEASURE}"

    def missing(self) -> bool:
        """Whether its package is not here."""
        code = f"import {self.package}" if self.package else "0"
        command = [sys.executable, "-c", code]
        return bool(subprocess.run(command, check=False, capture_output=True).returncode)


BIN = "noise(3000000).tofile('a.bin')"
READS = {
    "PIL": Way(
        "np.asarray(Image.open('a.png'))", "Image.fromarray(noise(512, 512, 3)).save('a.png')",
        "from PIL import Image", "PIL"),
    "cv2": Way("assert cv2.imread('a.png') is not None", "cv2.imwrite('a.png', noise(512, 512, 3))",
               "import cv2", "cv2", STDIO),
    "np.load": Way("np.load('a.npy')", "np.save('a.npy', noise(3000000))", truth=4096 + 3000000),
    "np.memmap": Way("np.array(np.memmap('a.bin', mode='r'))", BIN, truth=NOTHING),
    "np.fromfile": Way("np.fromfile('a.bin', np.uint8)", BIN, truth=SIZE),
    "npz": Way("z = np.load('a.npz'); z['a'], z['b']",
               "np.savez('a.npz', a=noise(3000000), b=noise(1000))"),
    "HDF5": Way("h5py.File('a.h5')['x'][:]", "with h5py.File('a.h5', 'w') as f: f['x'] = noise(3000000)",
                "import h5py", "h5py"),
    "zarr": Way("np.asarray(zarr.load('a.zarr'))", "zarr.save('a.zarr', noise(3000000))",
                "import zarr", "zarr"),
    "TFRecord": Way(
        "f = open('a.tfrecord', 'rb')\nwhile h := f.read(12): f.read(struct.unpack('<QI', h)[0] + 4)",
        "with open('a.tfrecord', 'wb') as f:\n"
        "    for i in range(50): f.write(struct.pack('<QI', 20000, 0) + bytes(20004))", truth=SIZE),
    "WebDataset tar": Way(
        "t = tarfile.open('a.tar', 'r|')\nfor m in t: t.extractfile(m).read()",
        "noise(50000).tofile('x')\nwith tarfile.open('a.tar', 'w') as t:\n"
        "    for i in range(20): t.add('x', f'{i}.bin')\nos.unlink('x')"),
    "LMDB": Way(
        "e = lmdb.open('a', readonly=True, lock=False)\nwith e.begin() as t: t.get(b'k')\ne.close()",
        "e = lmdb.open('a', map_size=1 << 24)\nwith e.begin(write=True) as t: t.put(b'k', bytes(1000000))",
        "import lmdb", "lmdb", 64 + 2 * 152),  # the rest is mapped
    "safetensors": Way(
        "load_file('a.safetensors')", "save_file({'a': noise(3000000)}, 'a.safetensors')",
        "from safetensors.numpy import load_file, save_file", "safetensors"),
    "parquet": Way(
        "pq.read_table('a.parquet', memory_map=False, use_threads=False)",
        "pq.write_table(pa.table({'a': noise(3000000)}), 'a.parquet')",
        "import pyarrow as pa, pyarrow.parquet as pq", "pyarrow"),
    "torch.load": Way("torch.load('a.pt')", "torch.save(torch.arange(500000.), 'a.pt')", "import torch",
                      "torch"),
    "nibabel": Way(
        "np.asarray(nibabel.load('a.nii', mmap=False).dataobj)",
        "nibabel.save(nibabel.Nifti1Image(np.zeros((64, 64, 64)), np.eye(4)), 'a.nii')",
        "import nibabel", "nibabel"),
    "tifffile": Way("tifffile.imread('a.tif')", "tifffile.imwrite('a.tif', noise(1500, 1500))",
                    "import tifffile", "tifffile"),
    "soundfile": Way("soundfile.read('a.wav')", "soundfile.write('a.wav', np.zeros(500000), 16000)",
                     "import soundfile", "soundfile"),
    "pickle": Way("with open('a.pkl', 'rb') as f: pickle.load(f)",
                  "with open('a.pkl', 'wb') as f: pickle.dump(noise(3000000), f)"),
    "os.pread": Way(
        "fd = os.open('a.bin', os.O_RDONLY)\nfor i in range(30): os.pread(fd, 100000, i * 100000)",
        BIN, truth=SIZE),
    "io.FileIO": Way("io.FileIO('a.bin').readall()", BIN, truth=SIZE),
    "readinto with O_DIRECT": Way(
        "b = mmap.mmap(-1, 1 << 20); fd = os.open('a.bin', os.O_RDONLY | os.O_DIRECT)\n"
        "assert os.readv(fd, [b]) == 1 << 20", "noise(1 << 20).tofile('a.bin')", "import mmap",
        truth=SIZE),
    "a pool of threads": Way(
        "with ThreadPoolExecutor(8) as p: list(p.map(lambda i: open(f'{i}.bin', 'rb').read(), range(16)))",
        "for i in range(16): noise(200000).tofile(f'{i}.bin')",
        "from concurrent.futures import ThreadPoolExecutor", truth=SIZE),
    "fsspec": Way("with fsspec.open('file://' + os.path.abspath('a.bin'), 'rb') as f: f.read()", BIN,
                  "import fsspec", "fsspec", SIZE),
    "stdio: getline, fgets, getc": Way(
        "f = ctypes.c_void_p(c.fopen(b'a.txt', b'r')); l = ctypes.c_char_p(); n = ctypes.c_size_t()\n"
        "b = ctypes.create_string_buffer(100)\n"
        "for i in range(3000): c.getline(ctypes.byref(l), ctypes.byref(n), f)\n"
        "for i in range(3000): c.fgets(b, 100, f)\nwhile c.fgetc(f) >= 0: pass\nc.fclose(f)",
        "with open('a.txt', 'w') as f: f.write('12345 line of text\\n' * 9000)",
        "import ctypes; c = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p", truth=SIZE),
    "sendfile, copy_file_range": Way(
        "s = os.open('a.bin', 0); t = os.open('b.bin', os.O_CREAT | os.O_WRONLY)\n"
        "os.sendfile(t, s, 0, 2000000); os.copy_file_range(s, t, 1000000, 2000000, 2000000)",
        BIN, truth=SIZE),
}  # fmt: skip
WRITES = {
    "torch.save": Way("torch.save(t, 'a.pt')", "", "import torch; t = torch.arange(500000.)", "torch",
                      SIZE),
    "safetensors": Way("save_file({'a': noise(3000000)}, 'a.safetensors')", "",
                       "from safetensors.numpy import save_file", "safetensors"),
    "np.save": Way("np.save('a.npy', noise(3000000))", truth=SIZE),
    "distributed checkpoint": Way(
        "warnings.simplefilter('ignore'); dcp.save({'a': torch.arange(400000.)}, checkpoint_id='ck')", "",
        "import torch, torch.distributed.checkpoint as dcp, warnings", "torch"),
    "HDF5": Way("with h5py.File('a.h5', 'w') as f: f['x'] = noise(3000000)", "", "import h5py", "h5py"),
    "fsync each": Way(
        "fd = os.open('a.bin', os.O_CREAT | os.O_WRONLY)\n"
        "for i in range(10): os.write(fd, bytes(10000)); os.fsync(fd)", truth=SIZE),
    "a checkpoint in a thread": Way(
        "w = threading.Thread(target=torch.save, args=(t, 'a.pt')); w.start(); w.join()", "",
        "import torch; t = torch.arange(500000.)", "torch", SIZE),
    "log lines": Way(
        "with open('a.log', 'w') as f:\n    for i in range(500): f.write(f'step {i}\\n'); f.flush()",
        truth=SIZE),
}  # fmt: skip


def try_way(way: Way, kind: str, tracer: str) -> tuple[int, int, int]:
    """The least and the most bytes that it can have moved, and those seen of its files."""
    with tempfile.TemporaryDirectory(prefix="ways-") as made:
        folder, work = Path(made), Path(made) / "work"
        work.mkdir()
        make, script, said = folder / "make.py", folder / "way.py", folder / "said"
        make.write_text(f"{PRELUDE}{way.imports}\n{way.make}\n")
        script.write_text(way.program(kind))
        subprocess.run([sys.executable, str(make)], cwd=work, check=True, capture_output=True)
        line = f"cd {work} && exec {sys.executable} {script} 2>{said}"
        done = record(["sh", "-c", line], folder / "RUN", tracer=tracer, with_steps=False)
        if done.exit_status:
            raise SystemExit(f"{script} failed:\n{said.read_text()[-2000:]}")
        of_a_file = {p: p.stat().st_size for p in work.rglob("*") if p.is_file()}
        size = sum(n for p, n in of_a_file.items() if p.name != "b.bin")
        account = int(said.read_text().split()[-1])
        known = {SIZE: (size, size), ACCOUNT: (account, account), STDIO: (size, account)}
        known[NOTHING] = (0, 0)
        least, most = known[way.truth] if isinstance(way.truth, str) else (way.truth, way.truth)
        files = vanidl.open_run(folder / "RUN").frame("files")
        seen = files[files["file"].str.startswith(str(work))][kind].sum()
        return TURNS * least, TURNS * most, int(seen)


def main() -> int:
    """A line a way and tracer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tracer", nargs="*", default=["vanidl"])
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    wrong = 0
    for kind, ways in ((READ, READS), (WRITTEN, WRITES)):
        for name, way in ways.items():
            if options.only and name not in options.only:
                continue
            if way.missing():
                print(f"{kind:14} {name:28} {way.package} is not installed")
                continue
            for tracer in options.tracer:
                least, most, seen = try_way(way, kind, tracer)
                right = least <= seen <= most
                wrong += tracer == "vanidl" and not right
                share = "all" if right else f"{seen / most:.2%}" if most else "too much"
                print(
                    f"{kind:14} {name:28} {tracer:9} {most:>11,} {seen:>11,} {share:>8}", flush=True
                )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
