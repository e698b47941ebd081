"""Encoding a whole data set: a container a sample, in parallel, resumed after an interruption.

A container is written under another name, then renamed: what is there is whole and is skipped.
`encoding.json` beside the containers says how they were encoded, so that two ways do not mix.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from ..data.pread import written_whole
from ..data.readers import open_reader
from ..data.samples import DESCRIPTION, SampleSet, open_samples
from ..errors import InputError
from .coding import Codec, codec_for, encode_sample
from .convert import FORMATS, Arrays, read_sample
from .cosmoflow import CosmoFlow
from .deepcam import FORMAT, DeepCam
from .staging import count_cores

SUFFIX = ".vdl"
MARK = "encoding.json"
ENCODED = "encoded"
"""Folder beside the data where the containers go unless told otherwise."""

Progress = Callable[[int, int], None]
Codecs = Callable[[Arrays], Mapping[str, Codec]]
"""The codecs for the arrays of a sample."""

WORKLOAD_CODECS: dict[str, dict[str, Codec]] = {
    "cosmoflow": {"counts": CosmoFlow(redshifts="first")},
    "deepcam": {"climate/data": DeepCam(channels="first")},
}
"""Workload -> the codec of each array that is not left to `codec_for`."""


@dataclass(frozen=True)
class Work:
    """One sample to encode: where to, and what gives its arrays."""

    target: Path
    read: Callable[[], Arrays]


@dataclass(frozen=True)
class EncodeTotals:
    """What encoding a data set gave.

    Attributes:
        encoded: Samples encoded now.
        skipped: Samples that were there.
        nbytes: Bytes of the arrays encoded now.
        encoded_nbytes: Bytes of their containers.
    """

    encoded: int = 0
    skipped: int = 0
    nbytes: int = 0
    encoded_nbytes: int = 0

    def plus(self, nbytes: int, encoded_nbytes: int) -> EncodeTotals:
        """With one more sample encoded."""
        return EncodeTotals(
            self.encoded + 1,
            self.skipped,
            self.nbytes + nbytes,
            self.encoded_nbytes + encoded_nbytes,
        )


def sample_path(folder: Path, sample: int) -> Path:
    """The container of a sample of a set."""
    return folder / f"{sample // 1000:04d}" / f"{sample:07d}{SUFFIX}"


def encode_folder(
    source: str | Path,
    target: str | Path,
    *,
    codecs: Codecs | None = None,
    settings: str = "",
    threads: int | None = None,
    progress: Progress | None = None,
) -> EncodeTotals:
    """Encodes every sample of a folder; samples whose containers are there are skipped.

    Args:
        source: Written by `python -m vanidl_loaders make`, or holding files of known suffixes.
        target: Where the containers go, in the same folders.
        codecs: None: those of the workload, else `codec_for`.
        settings: What `codecs` was made from, kept in `encoding.json`.
        threads: Samples at a time; None: one per core.
        progress: Told (samples done, samples in all).

    Raises:
        InputError: No samples in `source`, or `target` was encoded otherwise.
    """
    source, target = Path(source), Path(target)
    held = open_samples(source) if (source / DESCRIPTION).exists() else None
    codecs = codecs or (_encode_workload(held) if held else _encode_arrays)
    # What there is to encode, and that the target is of the same data and settings.
    work = list(_encode_set(held, target) if held else _encode_files(source, target))
    if not work:
        raise InputError(
            f"expected {DESCRIPTION} or files of {', '.join(FORMATS)} in {source}, found none"
        )
    _claim_folder(target, held, settings)
    # A container is written under another name and renamed: what is there is whole.
    left = [each for each in work if not each.target.exists()]
    done = EncodeTotals(skipped=len(work) - len(left))
    calls = [partial(_encode, each, codecs) for each in left]
    for sizes in _map_in_threads(calls, threads or count_cores()):
        done = done.plus(*sizes)
        if progress:
            progress(done.encoded + done.skipped, len(work))
    return done


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as part:
        part.write_bytes(content)


def _encode(work: Work, codecs: Codecs) -> tuple[int, int]:
    arrays = work.read()
    content = encode_sample(arrays, codecs(arrays))
    write_whole(work.target, content)
    return sum(array.nbytes for array in arrays.values()), len(content)


def _map_in_threads(
    calls: Iterable[Callable[[], tuple[int, int]]], threads: int
) -> Iterator[tuple[int, int]]:
    """What the calls gave, as they end; few samples are in memory at a time."""
    waiting = iter(calls)
    with ThreadPoolExecutor(threads) as pool:
        running: set[Future[tuple[int, int]]] = set()
        while True:
            # One more than there are threads, so that none waits for this loop.
            running |= {pool.submit(call) for call in islice(waiting, threads + 1 - len(running))}
            if not running:
                return
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (each.result() for each in ended)


def _encode_workload(samples: SampleSet) -> Codecs:
    codec_of = WORKLOAD_CODECS.get(samples.workload, {})
    return lambda arrays: {name: codec for name, codec in codec_of.items() if name in arrays}


def _encode_arrays(arrays: Arrays) -> Mapping[str, Codec]:
    return {name: codec_for(array, name) for name, array in arrays.items()}


def _encode_set(samples: SampleSet, target: Path) -> Iterator[Work]:
    """One reader a sample: HDF5 handles are not shared between threads."""
    for sample in range(len(samples)):
        yield Work(sample_path(target, sample), partial(_read, samples, sample))


def _read(samples: SampleSet, sample: int) -> Arrays:
    opened = open_reader(samples)
    try:
        return opened.read(sample)
    finally:
        opened.close()


def _encode_files(source: Path, target: Path) -> Iterator[Work]:
    for path in sorted(source.rglob("*")):
        suffixes = [s for s in path.suffixes if s != ".gz"]
        if suffixes and suffixes[-1] in FORMATS and path.is_file() and target not in path.parents:
            place = target / path.relative_to(source)
            yield Work(place.with_name(f"{place.name}{SUFFIX}"), partial(read_sample, path))


def _claim_folder(target: Path, held: SampleSet | None, settings: str) -> None:
    """Writes how the samples are encoded; or compares it with what is there."""
    # What decides the bytes of the containers, as JSON gives it back.
    codec_of = {} if held is None else WORKLOAD_CODECS.get(held.workload, {})
    codecs = {name: {"codec": each.NAME} | asdict(each) for name, each in codec_of.items()}  # type: ignore[call-overload]
    for codec in codecs.values():
        if codec["codec"] == DeepCam.NAME:
            codec["format"] = FORMAT
    samples = None if held is None else [held.workload, held.samples, held.seed, held.size]
    wanted = json.loads(json.dumps({"settings": settings, "codecs": codecs, "samples": samples}))
    # Written where nothing is yet, else compared.
    mark = target / MARK
    if not mark.exists():
        target.mkdir(parents=True, exist_ok=True)
        write_whole(mark, json.dumps(wanted, indent=1).encode())
        return
    try:
        found = json.loads(mark.read_bytes())
    except ValueError as error:
        raise InputError(f"expected JSON in {mark}, found {error}: encode elsewhere") from error
    if found != wanted:
        raise InputError(
            f"expected containers encoded by {wanted} in {target}, found {found}: choose another "
            "folder, or remove this one"
        )
