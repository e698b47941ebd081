"""Published results of MLPerf Storage against their own summary.json.

python benchmarks/vanidl/mlperf_storage.py FOLDER: a folder with results of
github.com/mlcommons/storage_results_v0.5, v1.0, v2.0 or v3.0 somewhere below.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import vanidl

MIB, GIB = 1 << 20, 1 << 30


def figures(run: vanidl.Run) -> dict[str, float | None]:
    """What vanidl says of a result, in the units of summary.json."""
    found = run.to_dict()["benchmarks"][0]
    rates = {"train_io_mean_MB_per_second": ("io_bytes_per_s", MIB),
             "save_checkpoint_io_mean_GB_per_second": ("save_bytes_per_s", GIB),
             "load_checkpoint_io_mean_GB_per_second": ("load_bytes_per_s", GIB)}  # fmt: skip
    scaled = {name: found[key] / unit for name, (key, unit) in rates.items() if found[key]}
    return scaled | {
        "train_au_mean_percentage": found["summary_percent"],
        "train_throughput_mean_samples_per_second": found["samples_per_s"],
    }


def differing(run: vanidl.Run, metric: dict[str, float]) -> Iterator[str]:
    """Names of figures that are not those of the summary."""
    for name, value in figures(run).items():
        said = metric.get(name)
        if said is not None and (value is None or abs(value - said) > 1e-9 * abs(said)):
            yield name


def main() -> int:
    """Counts of equal figures, of rules, and of verdicts of comparisons."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    counts: Counter[str] = Counter()
    sides: dict[Path, list[vanidl.Run]] = defaultdict(list)
    workloads: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("summary.json")):
        if "results" not in path.parts or "code" in path.parts or path.name.startswith("._"):
            continue
        metric = json.loads(path.read_text(errors="replace")).get("metric", {})
        try:
            run = vanidl.open_run(path.parent)
        except vanidl.VanidlError as error:
            counts[f"not read: {type(error).__name__}"] += 1
            print(path, error)
            continue
        counts["read"] += 1
        wrong = list(differing(run, metric))
        counts["figures differ" if wrong else "figures equal"] += 1
        for name in wrong:
            print(path, name)
        (result,) = run.benchmarks
        for rule in result.rules:
            counts[f"rule {rule.name}: {rule.holds}"] += 1
        if result.epochs_from_memory:
            counts["epochs from memory named"] += 1
        parent = next((p for p in path.parents if not p.name.startswith(("run", "c0"))), path)
        sides[parent].append(run)
        if len(sides[parent]) == 1:
            workloads[result.workload].append(parent)
    print(f"{len(sides)} groups of {statistics.median(map(len, sides.values())):g} runs")
    for workload, groups in workloads.items():
        for a, b in pairwise(groups):
            if min(len(sides[a]), len(sides[b])) >= 3:
                rows = vanidl.compare_runs(sides[a], sides[b]).frame().set_index("quantity")
                counts[f"compared {workload}: {rows.loc['samples_per_s', 'verdict']}"] += 1
    for name, count in sorted(counts.items()):
        print(f"{count:6,}  {name}")
    return int(counts["figures differ"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
