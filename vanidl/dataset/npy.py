"""NPY and NPZ files: only their headers are read."""

from __future__ import annotations

import math
import warnings
import zipfile
from pathlib import Path
from tokenize import TokenError
from typing import IO

from numpy.lib import format as npy_format

from vanidl.errors import InputError
from vanidl.model.run_facts import ArrayFacts, Block, FileFacts


def read_npy_facts(path: Path) -> FileFacts:
    """Shape and type of the one array; samples = its first dimension.

    Raises:
        InputError: the file is no NPY file.
    """
    with path.open("rb") as file:
        array = _read_header(file, path.stem, str(path))
    return _build_facts(path, "NPY", (array,), ())


def read_npz_facts(path: Path) -> FileFacts:
    """Every array of the archive; samples = the first dimension that most bytes share.

    Raises:
        InputError: the file is no NPZ file.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            arrays = tuple(_read_member(archive, m, path) for m in members)
    except zipfile.BadZipFile as error:
        raise InputError(
            f"{path}: expected an NPZ archive, found: {error}. Leave it out of --inspect."
        ) from error
    blocks = tuple(Block(m.compress_size, 1, f"stored array {m.filename}") for m in members)
    return _build_facts(path, "NPZ", arrays, blocks)


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> ArrayFacts:
    with archive.open(member) as file:
        array = _read_header(file, member.filename.removesuffix(".npy"), str(path))
    filters = () if member.compress_type == zipfile.ZIP_STORED else ("deflate",)
    return ArrayFacts(
        array.name, array.shape, array.dtype, None, filters, int(member.compress_size)
    )


def _read_header(file: IO[bytes], name: str, path: str) -> ArrayFacts:
    try:
        version = npy_format.read_magic(file)
        read = (
            npy_format.read_array_header_1_0 if version == (1, 0)
            else npy_format.read_array_header_2_0
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "created on Python 2": no matter here
            shape, _, dtype = read(file)
        stored = math.prod(shape) * dtype.itemsize
    except (ValueError, TypeError, SyntaxError, TokenError) as error:
        raise InputError(
            f"{path}: expected a NumPy array, found: {error}. Leave it out of --inspect."
        ) from error
    return ArrayFacts(name, tuple(shape), str(dtype), stored_bytes=stored)


def _build_facts(
    path: Path, kind: str, arrays: tuple[ArrayFacts, ...], blocks: tuple[Block, ...]
) -> FileFacts:
    lengths = {a.shape[0] for a in arrays if a.shape and a.shape[0] > 0}
    samples = lengths.pop() if len(lengths) == 1 else None
    stored = sum(a.stored_bytes or 0 for a in arrays if a.shape)
    mean = stored / samples if samples else None
    return FileFacts(str(path), kind, path.stat().st_size, samples, mean, arrays, blocks)
