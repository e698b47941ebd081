"""Whose data loader a run used: advice names no other's.

Event files tell nothing: PyTorch writes the same as TensorFlow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from vanidl.model.trace import MPIIO, Trace

PYTORCH, TENSORFLOW = "PyTorch", "TensorFlow"
SHARDS = {PYTORCH: "DistributedSampler", TENSORFLOW: "tf.data shard"}
PREFETCH = {
    PYTORCH: "more DataLoader workers or a larger prefetch_factor",
    TENSORFLOW: "tf.data prefetch",
}
BACKGROUND = {
    PYTORCH: "DataLoader(num_workers=N, prefetch_factor=...)",
    TENSORFLOW: "tf.data prefetch",
}
_CODE = {
    PYTORCH: re.compile(r"/torch/.*\.(py|pyc|so)\b"),
    TENSORFLOW: re.compile(r"/tensorflow/.*\.(py|pyc|so)\b"),
}


def frameworks(trace: Trace, files: Iterable[str]) -> tuple[str, ...]:
    """Whose loader it is, likeliest first.

    A benchmark's settings say it; else profiles, code that was imported, and data do. Both where
    nothing tells; none of them where nothing tells and ranks used MPI-IO or timed MPI.

    Args:
        trace: the run.
        files: paths of the dataset.
    """
    if trace.benchmarks and (stated := _stated(trace)) is not None:
        return stated
    sources = " ".join(profile.source for profile in trace.profiles)
    records = any("tfrecord" in path.lower() for path in files)
    if "pytorch" in sources or any("DataLoader" in name for name in trace.spans.names):
        return (PYTORCH,)
    imported = _imported(trace)
    if len(imported) == 1:
        return imported
    if "xplane" in sources or "trace-viewer" in sources or imported:
        return (TENSORFLOW, PYTORCH) if records else (PYTORCH, TENSORFLOW)
    if records:
        return (TENSORFLOW,)
    return () if trace.mpi or MPIIO in trace.counters else (PYTORCH, TENSORFLOW)


def _stated(trace: Trace) -> tuple[str, ...] | None:
    """Those that benchmarks were set to run, () for others than these; None: not recorded."""
    found = {benchmark.framework for benchmark in trace.benchmarks}
    if not all(found):
        return None
    return tuple(name for name in (PYTORCH, TENSORFLOW) if name.lower() in found)


def named_frameworks(trace: Trace) -> tuple[str, ...]:
    """Those that profiles or imported code name; () where nothing does."""
    sources = " ".join(profile.source for profile in trace.profiles)
    if "pytorch" in sources or "xplane" in sources or "trace-viewer" in sources:
        return frameworks(trace, ())
    return _imported(trace)


def _imported(trace: Trace) -> tuple[str, ...]:
    return tuple(
        name for name, code in _CODE.items() if any(code.search(path) for path in trace.files.path)
    )


def phrases(found: Iterable[str], by_framework: Mapping[str, str], otherwise: str = "") -> str:
    """The phrases of those frameworks after one another; `otherwise` where there is none."""
    known = [by_framework[name] for name in found if name in by_framework]
    return ", ".join(known) or otherwise
