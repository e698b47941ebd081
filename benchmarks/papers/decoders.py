"""Figures of the paper on decoders: staged and unstaged, small and large sets, batches of 1 to 8.

One process trains CosmoFlow from int16 TFRecords (base), the same through gzip, and containers;
DeepCAM from float32 in HDF5 (base) and containers. Decoding is the DataLoader's worker's, on the
CPU. All are recorded by vanidl:
    staged     from the local disk (large: 0.1 ms a request, 1 GB/s, as of an NVMe disk)
    unstaged   from the emulated parallel file system (2 ms a request, 100 MB/s)
    small      the page cache keeps the set after the first epoch
    large      every epoch reads it from storage
What a sample takes of the file system, and the parts of the step (figures 9 and 12), are of
vanidl's summary. Bytes are judged; speeds are not: figures 8, 10 and 11 are of GPUs, the decoder
here shares two cores with the model.

Parts `cosmoflow` and `deepcam` have small sets in batches of four, and the step's parts; those that
end in `-batches` have every place and batches of 1 to 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from benchmarks.papers.study import Answer, Part, Row, record_program
from benchmarks.programs import decoder_training
from vanidl_loaders.decoders import encode_sample
from vanidl_loaders.decoders.convert import write_sample
from vanidl_loaders.decoders.folders import WORKLOAD_CODECS
from vanidl_loaders.emulated_fs.model import Cost
from vanidl_loaders.emulated_fs.mount import EmulatedStorage
from vanidl_loaders.workloads.registry import find_workload

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
SETS = {"cosmoflow": ((32, 64), (64, 128)), "deepcam": ((32, 192), (32, 768))}
"""Workload -> (samples, points a side), small and in full."""
SMALLER = {
    ("cosmoflow", "decoded"): ("about 4 times", (3.3, 4.2)),
    ("cosmoflow", "gzip"): ("about 5 times", (4.0, 9.0)),
    ("deepcam", "decoded"): ("not given", (2.0, 4.2)),
}
"""(Workload, way) -> how many times smaller than base the paper has samples, and what agrees."""
FASTER = {
    ("cosmoflow", "gzip", "small"): "up to 1.5 times slower",
    ("cosmoflow", "gzip", "large"): "between base and decoded",
    ("cosmoflow", "decoded", "small"): "3 to 8 times (GPU)",
    ("cosmoflow", "decoded", "large"): "up to 10 times (GPU)",
    ("deepcam", "decoded", "small"): "up to 2.5 times (CPU decoder)",
    ("deepcam", "decoded", "large"): "up to 2.5 times (CPU decoder)",
}


def write_samples(folder: Path, workload: str, samples: int, size: int) -> dict[str, float]:
    """The same samples in every way, a folder each; bytes of a sample by way."""
    module = find_workload(workload)
    described = module.describe(folder, samples=samples, seed=0, size=size)
    for way in SUFFIXES[workload]:
        (folder / way).mkdir(parents=True, exist_ok=True)
    for number in range(samples):
        arrays = module.sample(described, number)
        for way, suffix in SUFFIXES[workload].items():
            path = folder / way / f"{number:05d}{suffix}"
            if way == "decoded":
                path.write_bytes(encode_sample(arrays, WORKLOAD_CODECS[workload]))
            else:
                write_sample(path, arrays)
    return {
        way: sum(path.stat().st_size for path in (folder / way).iterdir()) / samples
        for way in SUFFIXES[workload]
    }


@dataclass(frozen=True)
class Training:
    """One training: of what, from where, in batches of how many."""

    workload: str
    way: str
    place: str
    batch: int
    size: int

    def record(self, scratch: Path) -> Answer:
        """What vanidl says of it."""
        storage, folder = PLACES[self.place], scratch / self.workload / self.way
        with ExitStack() as stack:
            if storage.cost:
                target = scratch / "pfs" / self.workload / self.way
                target.mkdir(parents=True, exist_ok=True)
                emulated = EmulatedStorage(
                    folder, target, cost=storage.cost, page_cache=storage.page_cache
                )
                folder = stack.enter_context(emulated).target
            program = [decoder_training.__file__, self.workload, self.way, str(folder)]
            program += [str(self.batch), str(EPOCHS), str(self.size)]
            place = self.place.replace(", ", "-")
            run = scratch / f"{self.workload}-{self.way}-{place}-{self.batch}"
            return record_program(program, run)


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


def measure_steps(workload: str, small: bool, scratch: Path) -> Iterator[Row]:
    """Sizes, then small sets in batches of four: bytes, speeds, and what steps consist of."""
    samples, size = SETS[workload][0 if small else 1]
    nbytes = write_samples(scratch / workload, workload, samples, size)
    yield from compare_sizes(workload, nbytes)
    for place in ("staged, small", "unstaged, small"):
        trainings = [Training(workload, way, place, 4, size) for way in nbytes]
        answers = {each.way: each.record(scratch) for each in trainings}
        yield from compare_ways(trainings, answers, nbytes, samples)
        for way, answer in answers.items():
            yield from break_down_step(f"{workload}, {way}, {place}", answer)


def measure_batches(workload: str, small: bool, scratch: Path) -> Iterator[Row]:
    """All places, and batches of 1 to 8: bytes and speeds."""
    samples, size = SETS[workload][0 if small else 1]
    nbytes = write_samples(scratch / workload, workload, samples, size)
    seconds: dict[tuple[str, str, int], float] = {}
    for place, batch in product(PLACES, (1, 2, 4, 8)):
        trainings = [Training(workload, way, place, batch, size) for way in nbytes]
        answers = {each.way: each.record(scratch) for each in trainings}
        yield from compare_ways(trainings, answers, nbytes, samples)
        for way, answer in answers.items():
            seconds[way, place, batch] = answer["steps"]["median_s"]

    def compare(figure: str, reported: str, longer: str, shorter: str) -> Iterator[Row]:
        for way, batch in product(nbytes, (1, 8)):
            times = seconds[way, longer, batch] / seconds[way, shorter, batch]
            of = f"{workload}, {way}, batch {batch}"
            yield Row(of, figure, reported, times, None, "{:.2f} times")

    yield from compare("staged as fast as unstaged, small set", "slightly better",
                       "unstaged, small", "staged, small")  # fmt: skip
    yield from compare("staged as fast as unstaged, large set", "up to 1.5 times",
                       "unstaged, large", "staged, large")  # fmt: skip
    yield from compare("small set as fast as large, unstaged", "1.2 to 2.4 times (DeepCAM, base)",
                       "unstaged, large", "unstaged, small")  # fmt: skip


def compare_sizes(workload: str, nbytes: dict[str, float]) -> Iterator[Row]:
    """How much smaller samples are than the baseline's."""
    for way in list(nbytes)[1:]:
        reported, (least, most) = SMALLER[workload, way]
        fewer = nbytes["base"] / nbytes[way]
        yield Row(f"{workload}, {way}", "sample, smaller than base", reported, fewer,
                  least < fewer < most, "{:.2f} times")  # fmt: skip
    if "gzip" in nbytes:
        yield Row(f"{workload}, gzip", "sample, of one encoded", "about 75 %",
                  nbytes["gzip"] / nbytes["decoded"])  # fmt: skip


def compare_ways(
    trainings: list[Training], answers: dict[str, Answer], nbytes: dict[str, float], samples: int
) -> Iterator[Row]:
    """Speeds beside base's, and whether each way read what its files hold."""
    base = answers["base"]["steps"]["median_s"]
    for each in trainings:
        answer, way = answers[each.way], each.way
        read = answer["io"]["dataset"]["bytes_read"] / (nbytes[way] * EPOCHS * samples)
        of = f"{each.workload}, {way}, {each.place}, batch {each.batch}"
        yield Row(of, "bytes read in an epoch, of those of the files", "all", read,
                  0.99 < read < 1.15, "{:.2f} times")  # fmt: skip
        speed = each.batch / answer["steps"]["median_s"]
        yield Row(of, "samples a second", "a bar", speed, None, "{:.1f}")
        reported = FASTER.get((each.workload, way, each.place.split(", ")[1]), "1")
        yield Row(of, "samples a second, of base", reported,
                  base / answer["steps"]["median_s"], None, "{:.2f} times")  # fmt: skip


PARTS = {
    "cosmoflow": Part("CosmoFlow, sizes and steps of base, gzip and decoded (figures 10, 12)",
                      partial(measure_steps, "cosmoflow")),
    "deepcam": Part("DeepCAM, sizes and steps of base and decoded (figures 8, 9)",
                    partial(measure_steps, "deepcam")),
    "cosmoflow-batches": Part("CosmoFlow from every place in batches of 1 to 8 (figures 10, 11)",
                              partial(measure_batches, "cosmoflow"), long=True),
    "deepcam-batches": Part("DeepCAM from every place in batches of 1 to 8 (figure 8)",
                            partial(measure_batches, "deepcam"), long=True),
}  # fmt: skip
