"""Figures of the paper on decoders: CosmoFlow staged and unstaged, small and large sets, batches.

One process trains from int16 TFRecords (base), the same through gzip, and containers that are
decoded by the DataLoader's worker, all on the CPU, recorded by vanidl:
    staged     from the local disk (large: 0.1 ms a request, 1 GB/s, as of an NVMe disk)
    unstaged   from the emulated parallel file system (2 ms a request, 100 MB/s)
    small      the page cache keeps the set after the first epoch
    large      every epoch reads it from storage
What a sample takes of the file system and the step's parts (figures 9 and 12) are of vanidl's
summary. Bytes are judged; speeds are not: figures 8, 10 and 11 are of GPUs, the decoder here shares
two cores with the model.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.papers.study import Answer, Row, record_program
from benchmarks.programs import decoder_training
from vanidl_loaders.decoders import encode_sample
from vanidl_loaders.decoders.convert import write_sample
from vanidl_loaders.decoders.folders import WORKLOAD_CODECS
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
from vanidl_loaders.workloads import cosmoflow

SUFFIXES = decoder_training.SUFFIXES
NVME, PFS = Cost(1e-4, total_bytes_per_s=1e9), Cost(2e-3, total_bytes_per_s=100e6)
EPOCHS = 3


@dataclass(frozen=True)
class Place:
    """Where samples are read from; no cost: the local disk itself."""

    cost: Cost | None
    page_cache: bool


PLACES = {
    "staged, small": Place(None, page_cache=True),
    "unstaged, small": Place(PFS, page_cache=True),
    "staged, large": Place(NVME, page_cache=False),
    "unstaged, large": Place(PFS, page_cache=False),
}
REPORTED = {
    ("base", "large"): "1.2 to 2.4 times slower than small (DeepCAM)",
    ("gzip", "small"): "up to 1.5 times slower than base",
    ("gzip", "large"): "between base and decoded",
    ("decoded", "small"): "3 to 8 times as fast as base",
    ("decoded", "large"): "up to 10 times as fast as base",
}


def write_universes(folder: Path, samples: int, size: int) -> dict[str, float]:
    """The same samples in all three ways, a folder each; bytes of a sample by way."""
    described = cosmoflow.describe(folder, samples=samples, seed=0, size=size)
    for way in SUFFIXES:
        (folder / way).mkdir(parents=True, exist_ok=True)
    for number in range(samples):
        arrays = cosmoflow.sample(described, number)
        for way in ("base", "gzip"):
            write_sample(folder / way / f"{number:05d}{SUFFIXES[way]}", arrays)
        content = encode_sample(arrays, WORKLOAD_CODECS["cosmoflow"])
        (folder / "decoded" / f"{number:05d}.vdl").write_bytes(content)
    return {
        way: sum(path.stat().st_size for path in (folder / way).iterdir()) / samples
        for way in SUFFIXES
    }


def record_training(scratch: Path, way: str, place: str, batch: int) -> Answer:
    """What vanidl says of training so."""
    storage, folder = PLACES[place], scratch / "universes" / way
    with ExitStack() as stack:
        if storage.cost:
            target = scratch / "pfs" / way
            target.mkdir(parents=True, exist_ok=True)
            emulated = EmulatedStorage(
                folder, target, cost=storage.cost, page_cache=storage.page_cache
            )
            folder = stack.enter_context(emulated).target
        program = [decoder_training.__file__, way, str(folder)]
        run = scratch / f"{way}-{place.replace(', ', '-')}-{batch}"
        return record_program([*program, str(batch), str(EPOCHS)], run)


def break_down_step(of: str, answer: Answer) -> Iterator[Row]:
    """What a step of the trainer and a batch of its worker consist of, as figures 9 and 12."""
    mean = answer["breakdown"]["mean"]
    yield Row(of, "step", "a bar", mean["step_s"] * 1e3, None, "{:.0f} ms")
    for part, (least, most) in mean["step_parts"].items():
        if most > 0.01 * mean["step_s"]:
            share = (least + most) / 2 / mean["step_s"]
            yield Row(of, f"step: {part.replace('_', ' ')}", "a bar", share)
    loader = answer["fetches"]["loaders"][0]
    batch_s = loader["samples_s"] + loader["collate_s"]
    yield Row(of, "batch in the worker", "a bar", batch_s * 1e3, None, "{:.0f} ms")
    yield Row(of, "batch: reading", "a bar", loader["reads_s"] / batch_s)
    yield Row(of, "batch: decoding and logarithm", "a bar", loader["decoding_s"] / batch_s)


def measure(small: bool, scratch: Path) -> Iterator[Row]:
    """All places and batches of 1 to 8; `small`: small sets of small samples, batches of four."""
    samples, size = (16, 64) if small else (64, 128)
    places = [name for name in PLACES if name.endswith("small")] if small else list(PLACES)
    nbytes = write_universes(scratch / "universes", samples, size)
    for way, reported, limits in (("decoded", "about 4 times", (3.3, 4.2)),
                                  ("gzip", "about 5 times", (4.0, 9.0))):  # fmt: skip
        fewer = nbytes["base"] / nbytes[way]
        yield Row(way, "sample, smaller than int16", reported, fewer,
                  limits[0] < fewer < limits[1], "{:.2f} times")  # fmt: skip
    for place in places:
        for batch in (4,) if small else (1, 2, 4, 8):
            answers = {way: record_training(scratch, way, place, batch) for way in SUFFIXES}
            yield from _compare(f"{place}, batch {batch}", answers, nbytes, samples)
            if batch == 4 and place.endswith("small"):
                for way, answer in answers.items():
                    yield from break_down_step(f"{way}, {place}", answer)


def _compare(
    where: str, answers: dict[str, Answer], nbytes: dict[str, float], samples: int
) -> Iterator[Row]:
    """Speeds beside base's, and whether each way read what its files hold."""
    base = answers["base"]["steps"]["median_s"]
    for way, answer in answers.items():
        held = nbytes[way] * EPOCHS * samples
        read = answer["io"]["dataset"]["bytes_read"] / held
        of = f"{way}, {where}"
        yield Row(of, "bytes read in an epoch, of those of the files", "all", read,
                  0.99 < read < 1.1, "{:.2f} times")  # fmt: skip
        set_size = "large" if "large" in where else "small"
        reported = REPORTED.get((way, set_size), "1")
        yield Row(of, "samples a second, of base", reported,
                  base / answer["steps"]["median_s"], None, "{:.2f} times")  # fmt: skip
