"""The samples in a peer's own format, in a folder beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ..data.pread import written_whole
from ..data.readers import Arrays, open_reader
from ..data.samples import Field, SampleSet
from ..errors import InputError, require_choice

FORMATS = ("mds", "tar")
SHARD_BYTES = 1 << 26
"""Size at which a shard is full, both formats: MosaicML Streaming's default."""

Progress = Callable[[int, int], None]


def find_folder(samples: SampleSet, form: str) -> Path:
    """Where the samples lie in that format."""
    return samples.folder / form


def require_shards(samples: SampleSet, form: str) -> Path:
    """The folder of shards.

    Raises:
        InputError: They were not converted, or not to the end.
    """
    path = find_folder(samples, form)
    if not path.is_dir():
        raise InputError(
            f"expected shards in {path}, found none: "
            f"python -m vanidl_loaders convert --data {samples.folder} --to {form}"
        )
    return path


def convert(samples: SampleSet, form: str, progress: Progress | None = None) -> Path:
    """Writes all samples as shards; the folder. There already: nothing is done.

    Raises:
        UsageError: No such format.
    """
    require_choice("a format", form, FORMATS)
    target = find_folder(samples, form)
    if target.is_dir():
        return target
    write = _write_mds if form == "mds" else _write_tar
    # Under another name until all are written: what is there is whole.
    with written_whole(target) as part:
        write(samples, part, _read_all(samples, progress))
    return target


def _read_all(samples: SampleSet, progress: Progress | None) -> Iterator[tuple[int, Arrays]]:
    source = open_reader(samples)
    for i in range(len(samples)):
        yield i, source.read(i)
        if progress:
            progress(i + 1, len(samples))
    source.close()


def _write_mds(samples: SampleSet, part: Path, content: Iterator[tuple[int, Arrays]]) -> None:
    from streaming import MDSWriter

    columns = {field.name: _name_mds_column(field) for field in samples.fields} | {"sample": "int"}
    with MDSWriter(out=str(part), columns=columns, size_limit=SHARD_BYTES, exist_ok=True) as writer:
        for i, arrays in content:
            writer.write({**arrays, "sample": i})


def _name_mds_column(field: Field) -> str:
    """MDS has no arrays without an axis: those are scalars."""
    return "ndarray" if field.shape else np.dtype(field.dtype).name


def _write_tar(samples: SampleSet, part: Path, content: Iterator[tuple[int, Arrays]]) -> None:
    from webdataset import ShardWriter

    part.mkdir(exist_ok=True)
    names = {field.name: name_tar_member(field.name) for field in samples.fields}
    pattern = str(part / "%06d.tar")
    with ShardWriter(pattern, maxsize=SHARD_BYTES, verbose=0) as writer:
        for i, arrays in content:
            entries = {names[name]: array for name, array in arrays.items()}
            writer.write({"__key__": f"{i:09d}", **entries})


def name_tar_member(field: str) -> str:
    """The extension under which a field lies in a tar: no slash, no dot inside."""
    return f"{field.replace('/', '-').replace('.', '-')}.npy"
