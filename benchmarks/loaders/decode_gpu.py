"""How fast batches are decoded on a GPU, against its own limits and other ways to the same data.

    python -m benchmarks.loaders.decode_gpu [--rehearse]

A rehearsal needs no GPU: it runs in Triton's interpreter.

Runs unattended. Fresh random samples, outputs poisoned before, are compared bit for bit with the
CPU; nothing is timed if that fails. Then, by CUDA events, medians, batches rotated so that their
data exceed the L2 cache several times:
  copy     device to device, bytes read + written: the limit
  decode   bytes of the containers read + bytes of float16 written, batches of 1 to 32;
           required >= 0.7 of the copy from batch 16 on
  feed     samples/s to decoded float16 on the device: ours from files in the page cache, read by
           one thread (so the host path is in it); from page-locked memory int16 copy + log on the
           GPU (NVIDIA's MLPerf path), float16 copy, float32 copy, nvCOMP's algorithms on the same
           int16, CPU gzip + log; required: CosmoFlow >= 3.3 x int16 copy (limit 3.74), DeepCAM
           >= 3.0 x float32 copy
What cannot run (no nvCOMP, no time left) is named with its reason; the rest goes on. Writes JSON
and text, with hardware, driver and date.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

if "--rehearse" in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported
import numpy as np
import torch
from numpy.typing import NDArray

from vanidl_loaders.decoders import CosmoFlow, DeepCam, decode_batch
from vanidl_loaders.decoders.coding import Codec
from vanidl_loaders.decoders.container import Encoded, pack
from vanidl_loaders.decoders.dataset import Verdict, read_batch
from vanidl_loaders.decoders.kernels import find_kernel
from vanidl_loaders.decoders.staging import (
    CudaTransfer,
    HostBuffer,
    HostTransfer,
    Ring,
    Staged,
    stage_rows,
)
from vanidl_loaders.errors import LoadersError
from vanidl_loaders.workloads.registry import find_workload

Array = NDArray[Any]
Run = Callable[[], Any]
FAILURES = (RuntimeError, ImportError, AttributeError, TypeError, ValueError, OSError, LoadersError)
"""What a step may fail with and others go on; a wrong result is an AssertionError and ends all."""
NVCOMP = ("LZ4", "Snappy", "GDeflate", "Deflate", "Zstd", "Cascaded", "Bitcomp", "ANS")
LEAST_OF_COPY = 0.7
LEAST_FEED = {"cosmoflow": ("int16 copy + GPU log", 3.3), "deepcam": ("float32 copy", 3.0)}


@dataclass(frozen=True)
class Scale:
    """How much: the real thing, or a rehearsal."""

    device: torch.device
    side: int
    distinct: int
    batches: tuple[int, ...]
    copy_nbytes: int
    repeats: int


REAL = Scale(torch.device("cuda"), 128, 32, (1, 4, 16, 32), 4 << 30, 20)
REHEARSAL = Scale(torch.device("cpu"), 16, 2, (1, 2), 1 << 20, 2)


@dataclass
class Results:
    """What was measured, and what was not, with the reason."""

    end: float
    steps: dict[str, Any] = field(default_factory=dict)

    def step(self, name: str, run: Run) -> dict[str, Any] | None:
        """Runs a step unless time is up; its result, or None where it failed."""
        if time.monotonic() > self.end:
            self.steps[name] = {"not_measured": "no time left"}
            return None
        try:
            self.steps[name] = run()
        except FAILURES as error:
            self.steps[name] = {"not_measured": f"{type(error).__name__}: {error}"[:300]}
            return None
        print(f"{name}: {self.steps[name]}", flush=True)
        found: dict[str, Any] = self.steps[name]
        return found


def main() -> int:
    """Exit status 0 where everything required was measured and met, else 1."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "results")
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    if not options.rehearse and not torch.cuda.is_available():
        parser.error("expected a CUDA device, found none: --rehearse runs without")
    scale = REHEARSAL if options.rehearse else REAL
    results = Results(time.monotonic() + 60 * options.minutes)
    samples = {"cosmoflow": universes(scale), "deepcam": climates(scale)}
    encoded = {name: encode_all(name, arrays) for name, arrays in samples.items()}
    for name in samples:
        results.steps[f"{name} bits"] = check(encoded[name], scale)  # a wrong bit ends here
    copied = results.step("copy", lambda: copy_bandwidth(scale))
    for name in samples:
        for batch in scale.batches:
            results.step(
                f"{name} decode, batch {batch}",
                lambda n=name, b=batch: decode_bandwidth(encoded[n], b, copied, scale),
            )
    for name, arrays in samples.items():
        for way, run in feeds(name, arrays, encoded[name], scale):
            results.step(f"{name} feed, {way}", run)
    verdicts = judge(results.steps)
    write(options.output, environment(scale), results.steps, verdicts)
    return 0 if all(verdicts.values()) else 1


def universes(scale: Scale) -> list[Array]:
    """CosmoFlow samples (side, side, side, 4) int16: the groups of a made one, drawn afresh.

    Its groups of four counts with their frequencies; so the table and its use are as in the made
    sample, and no two samples are alike.
    """
    made = sample("cosmoflow", scale.side, 0)["counts"]
    groups = np.ascontiguousarray(np.moveaxis(made, 0, -1)).reshape(-1, 4)
    random = np.random.default_rng()
    shape = (scale.side,) * 3
    return [
        random.permutation(groups, axis=0).reshape(*shape, 4)
        if scale.side < REAL.side
        else rolled(groups, random, shape)
        for _ in range(scale.distinct)
    ]


def rolled(groups: Array, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """The groups in another order: whole rows of voxels shuffled, cheap at full size."""
    rows = groups.reshape(-1, shape[-1], 4)[random.permutation(len(groups) // shape[-1])]
    return np.ascontiguousarray(rows.reshape(*shape, 4))


def climates(scale: Scale) -> list[Array]:
    """DeepCAM samples (channels, y, x) float32: a made one, each channel scaled and rolled."""
    size = find_workload("deepcam").SIZE if scale.side == REAL.side else 16
    made = sample("deepcam", size, 1)["climate/data"]
    made = made / np.abs(made).max((1, 2), keepdims=True)
    random = np.random.default_rng()
    return [
        np.roll(made, int(random.integers(size)), 1) * np.float32(random.uniform(0.5, 2))
        for _ in range(min(scale.distinct, 16))
    ]


def sample(workload: str, size: int, number: int) -> dict[str, Array]:
    """One sample of a workload, seeded by the clock: fresh."""
    module = find_workload(workload)
    seed = time.time_ns() % 2**31
    made = module.describe(Path(), samples=number + 1, seed=seed, size=size)
    return module.sample(made, number)


def encode_all(name: str, arrays: Sequence[Array]) -> list[Encoded]:
    """The arrays, encoded."""
    codec: Codec = {"cosmoflow": CosmoFlow(), "deepcam": DeepCam(channels="first")}[name]
    return [codec.encode(array) for array in arrays]


def check(encoded: Sequence[Encoded], scale: Scale) -> dict[str, Any]:
    """Compares the GPU's bits with the CPU's, over all samples.

    Raises:
        AssertionError: They differ.
    """
    kernel = find_kernel(encoded[0].codec)
    wrong = 0
    for each in encoded:
        wanted = decode_batch([{"a": each}], device="cpu")["a"]
        status = torch.zeros(1, dtype=torch.uint8, device=scale.device)
        for fill in (partial(kernel.launch, status=status), kernel.reference):
            out = torch.full_like(wanted, -7.0, device=scale.device)
            fill(staged_on(scale, [each]), out)
            wrong += not torch.equal(out.cpu().view(torch.int16), wanted.view(torch.int16))
        wrong += int(status.item())
    if wrong:
        raise AssertionError(f"expected the CPU's bits, found others in {wrong} samples")
    return {"samples": len(encoded), "wrong": wrong}


def copy_bandwidth(scale: Scale) -> dict[str, float]:
    """Bytes per second of a device-to-device copy, read and written ones counted."""
    source = torch.randint(0, 255, (scale.copy_nbytes,), dtype=torch.uint8, device=scale.device)
    target = torch.empty_like(source)
    seconds = timed([lambda: target.copy_(source)], scale)
    return {"bytes_per_s": 2 * scale.copy_nbytes / seconds}


def decode_bandwidth(
    encoded: Sequence[Encoded], batch: int, copied: dict[str, float] | None, scale: Scale
) -> dict[str, float | None]:
    """Decoding of a batch that lies on the device, batches in turn."""
    kernel = find_kernel(encoded[0].codec)
    rounds = max(2, -(-len(encoded) // batch))
    parts = [[encoded[(r * batch + i) % len(encoded)] for i in range(batch)] for r in range(rounds)]
    staged = [staged_on(scale, part) for part in parts]
    status = torch.zeros(batch, dtype=torch.uint8, device=scale.device)
    outs = [torch.empty((batch, *encoded[0].decoded.shape), dtype=torch.float16,
                        device=scale.device) for _ in range(min(rounds, 4))]  # fmt: skip
    targets = [outs[at % len(outs)] for at in range(rounds)]
    runs = [partial(kernel.launch, s, o, status) for s, o in zip(staged, targets, strict=True)]
    seconds = timed(runs, scale)
    read = statistics.mean(each.buffer.numel() for each in staged)
    moved = read + outs[0].numel() * 2
    return {
        "samples_per_s": batch / seconds,
        "moved_bytes_per_s": moved / seconds,
        "output_bytes_per_s": outs[0].numel() * 2 / seconds,
        "of_copy": moved / seconds / copied["bytes_per_s"] if copied else None,
    }


def feeds(
    name: str, arrays: Sequence[Array], encoded: Sequence[Encoded], scale: Scale
) -> list[tuple[str, Run]]:
    """Ways from host memory to decoded samples on the device; each gives samples/s."""
    batch = max(b for b in scale.batches if b <= 16)
    chosen = [arrays[i % len(arrays)] for i in range(batch)]
    halves = [log(array) if name == "cosmoflow" else array.astype(np.float16) for array in chosen]
    wide = [np.asarray(half, np.float32) for half in halves]
    ways: list[tuple[str, Run]] = [
        ("ours", lambda: feed_ours(encoded, batch, scale)),
        ("float16 copy", lambda: feed(halves, lambda x: x, scale)),
        ("float32 copy", lambda: feed(wide, lambda x: x, scale)),
    ]
    if name == "cosmoflow":
        ways += [
            ("int16 copy + GPU log", lambda: feed(chosen, gpu_log, scale)),
            ("CPU gzip + log", lambda: feed_gzip(chosen, scale)),
        ]
        ways += [(f"nvCOMP {a}", lambda a=a: feed_nvcomp(chosen, a, scale)) for a in NVCOMP]
    return ways


def staged_on(scale: Scale, encoded: Sequence[Encoded]) -> Staged:
    """Encoded samples in one buffer on the device."""
    kernel = find_kernel(encoded[0].codec)
    return stage_rows(HostBuffer(), [kernel.columns(each) for each in encoded]).to(scale.device)


def feed_ours(encoded: Sequence[Encoded], batch: int, scale: Scale) -> dict[str, float]:
    """From files in the page cache: read into page-locked memory, copied, checked, decoded."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.vdl" for number in range(batch)]
        for number, path in enumerate(paths):
            path.write_bytes(pack({"a": encoded[number % len(encoded)]}))
        on_gpu = scale.device.type == "cuda"
        transfer = CudaTransfer(scale.device) if on_gpu else HostTransfer()
        ring = Ring(2, pin_memory=on_gpu)
        verdict = Verdict([list(range(batch))], scale.device)

        def run() -> None:
            buffer = ring.take()
            staged = read_batch(paths, buffer)
            copied = transfer.begin(buffer.used)
            ring.give_back(buffer, copied)
            staged.decode(copied, verdict.of(0))

        seconds = timed([run], scale)
        verdict.require_good()
        nbytes = sum(path.stat().st_size for path in paths)
    return {"samples_per_s": batch / seconds, "nbytes": nbytes / batch}


def feed(
    arrays: Sequence[Array], finish: Callable[[torch.Tensor], torch.Tensor], scale: Scale
) -> dict[str, float]:
    """Plain arrays in page-locked memory, copied, and finished on the device."""
    host = torch.from_numpy(np.stack(arrays))
    host = host.pin_memory() if scale.device.type == "cuda" else host
    seconds = timed([lambda: finish(host.to(scale.device, non_blocking=True))], scale)
    return {"samples_per_s": len(arrays) / seconds, "nbytes": arrays[0].nbytes}


def gpu_log(counts: torch.Tensor) -> torch.Tensor:
    """NVIDIA's MLPerf path: cast, log(x + 1), channels first."""
    return torch.log(counts.float() + 1).half().movedim(-1, 1).contiguous()


def feed_gzip(arrays: Sequence[Array], scale: Scale) -> dict[str, float]:
    """Gunzip and log on one core of the CPU, float16 copied; wall time."""
    zipped = gzip.compress(arrays[0].tobytes(), 6)
    start = time.perf_counter()
    raw = np.frombuffer(gzip.decompress(zipped), np.int16).reshape(arrays[0].shape)
    torch.from_numpy(log(raw)).to(scale.device)
    synchronise(scale)
    return {"samples_per_s": 1 / (time.perf_counter() - start), "nbytes": len(zipped)}


def feed_nvcomp(arrays: Sequence[Array], algorithm: str, scale: Scale) -> dict[str, float]:
    """The int16 compressed by nvCOMP: compressed bytes copied, decompressed, log on the GPU."""
    nvcomp = importlib.import_module("nvidia.nvcomp")
    codec, host = nvcomp.Codec(algorithm=algorithm), []
    for array in arrays:
        content = torch.from_numpy(array).to(scale.device).view(torch.uint8).flatten()
        packed = torch.as_tensor(codec.encode(nvcomp.as_array(content)), device=scale.device)
        host.append(packed.view(torch.uint8).cpu().pin_memory())

    def run() -> torch.Tensor:
        held = [each.to(scale.device, non_blocking=True) for each in host]
        back = codec.decode([nvcomp.as_array(each) for each in held])
        counts = [torch.as_tensor(b, device=scale.device).view(torch.int16) for b in back]
        return gpu_log(torch.stack([c.view(arrays[0].shape) for c in counts]))

    wanted = gpu_log(torch.from_numpy(np.stack(arrays)).to(scale.device))
    if not torch.equal(run(), wanted):
        raise ValueError("nvCOMP gave other values")
    nbytes = statistics.mean(each.numel() for each in host)
    return {"samples_per_s": len(arrays) / timed([run], scale), "nbytes": nbytes}


def log(counts: Array) -> Array:
    """The logarithms of one plus the counts, float16, channels first."""
    logs = np.log1p(counts.astype(np.float32)).astype(np.float16)
    return np.ascontiguousarray(np.moveaxis(logs, -1, 0))


def timed(runs: Sequence[Run], scale: Scale) -> float:
    """Median seconds of a run, the runs in turn, by CUDA events (by the clock on the CPU)."""
    for run in runs[:3]:
        run()
    synchronise(scale)
    times = []
    for number in range(max(scale.repeats, len(runs))):
        run = runs[number % len(runs)]
        if scale.device.type == "cuda":
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        else:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def synchronise(scale: Scale) -> None:
    """Waits for the device."""
    if scale.device.type == "cuda":
        torch.cuda.synchronize()


def judge(steps: dict[str, Any]) -> dict[str, bool]:
    """Each requirement, and whether it was measured and met."""
    verdicts = {}
    for name in LEAST_FEED:
        large = [
            value.get("of_copy") or 0.0
            for step, value in steps.items()
            if step.startswith(f"{name} decode, batch ") and int(step.rsplit(" ", 1)[1]) >= 16
        ]
        met = bool(large) and min(large) >= LEAST_OF_COPY
        verdicts[f"{name}: decode >= {LEAST_OF_COPY} of the copy from batch 16"] = met
    for name, (peer, least) in LEAST_FEED.items():
        mine, other = (
            steps.get(f"{name} feed, {way}", {}).get("samples_per_s") for way in ("ours", peer)
        )
        met = bool(mine and other and mine / other >= least)
        ratio = f"{mine / other:.2f}" if mine and other else "not measured"
        verdicts[f"{name}: {ratio} x {peer}, required >= {least}"] = met
    return verdicts


def environment(scale: Scale) -> dict[str, str]:
    """Hardware, driver, versions and date."""
    found = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "triton": importlib.import_module("triton").__version__,
    }
    if scale.device.type != "cuda":
        return found | {"hardware": "rehearsal without a GPU: no figure here is a measurement"}
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    properties = torch.cuda.get_device_properties(0)
    return found | {
        "hardware": properties.name,
        "driver": smi.stdout.strip() or "not recorded",
        "l2_nbytes": str(properties.L2_cache_size),
    }


def write(
    folder: Path, where: dict[str, str], steps: dict[str, Any], verdicts: dict[str, bool]
) -> None:
    """JSON and text, named by hardware and date."""
    folder.mkdir(parents=True, exist_ok=True)
    label = "-".join(where["hardware"].split()[:2]).lower()
    stem = folder / f"decode_gpu-{label}-{where['date'][:10]}"
    content = json.dumps({"environment": where, "steps": steps, "required": verdicts}, indent=1)
    Path(f"{stem}.json").write_text(content + "\n")
    lines = [f"{name}: {value}" for name, value in (where | steps).items()]
    lines += [f"{'met' if met else 'NOT MET'}  {name}" for name, met in verdicts.items()]
    print(text := "\n".join(["made by benchmarks/loaders/decode_gpu.py", *lines, ""]))
    Path(f"{stem}.txt").write_text(text)


if __name__ == "__main__":
    sys.exit(main())
