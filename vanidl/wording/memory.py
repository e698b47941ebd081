"""What a run took of memory, in words."""

from __future__ import annotations

from vanidl.analyses.memory import COPIES, GROWTH, IN_FLIGHT, Memory
from vanidl.formatting.units import nbytes, percent, plural, seconds
from vanidl.model.run_facts import Ending

NEAR = 0.1
"""Of the limit: with less left, that is said in the answer."""


def sentence(memory: Memory | None, ending: Ending | None) -> str:
    """What the answer says of memory, "" where it is steady and far from its limit."""
    if memory is None:
        return ""
    if ending is not None and ending.memory_kills:
        return f"Memory ran out: {peak_words(memory)}. {what(memory)}".strip()
    near = (
        memory.limit_nbytes is not None
        and memory.left_nbytes is not None
        and memory.left_nbytes < NEAR * memory.limit_nbytes
    )
    if memory.kind == COPIES or near or memory.out_of_memory_s is not None:
        return f"Memory: {peak_words(memory)}. {what(memory)}".strip()
    return ""


def peak_words(memory: Memory) -> str:
    """`at most 12.3 GiB of the 64 GiB of its control group, its 8 workers at most 10 GiB`."""
    words = f"at most {nbytes(memory.peak_nbytes)}"
    if memory.limit_nbytes is not None:
        of = "its control group" if memory.limit_of == "control group" else "the machine"
        words += f" of the {nbytes(memory.limit_nbytes)} of {of}"
    if memory.workers:
        workers = plural(memory.workers, "worker")
        words += f", its {workers} at most {nbytes(memory.peak_workers_nbytes)}"
    return words


def what(memory: Memory) -> str:
    """What takes it, "" where there is nothing to say."""
    if memory.kind == COPIES:
        said = (
            f"Workers have made {nbytes(memory.copied_nbytes)} their own that they shared: "
            "reference counts do that to the objects of a list or dict in the dataset; an array "
            "of NumPy or a tensor is not copied."
        )
    elif memory.kind == IN_FLIGHT:
        said = f"Batches on their way take {nbytes(memory.peak_shared_nbytes)} of shared memory"
        if memory.batches_in_flight is not None:
            each = memory.peak_shared_nbytes / memory.batches_in_flight
            batches = plural(memory.batches_in_flight, "batch", "batches")
            said += f": {batches} (workers x prefetch_factor) of {nbytes(int(each))}"
        said += "; a lower prefetch_factor takes less."
    elif memory.kind == GROWTH:
        said = "It goes on growing."
    else:
        said = ""
    return f"{said} {trend_words(memory)}".strip()


def trend_words(memory: Memory) -> str:
    """When it would run out, "" where no trend holds."""
    slope = memory.growth_nbytes_per_s
    if slope is None:
        return ""
    words = f"At its end it grew by {nbytes(int(60 * slope))} a minute"
    if memory.growth_nbytes_per_epoch is not None and memory.growth_nbytes_per_epoch > 0:
        words += f", {nbytes(int(memory.growth_nbytes_per_epoch))} an epoch"
    if memory.out_of_memory_s is not None:
        words += f"; going on so it is out of memory in about {seconds(memory.out_of_memory_s)}"
    return f"{words}."


def left_words(memory: Memory) -> str:
    """`52 GiB (81 %) were left at least`, "" where no limit is known."""
    if memory.limit_nbytes is None or memory.left_nbytes is None:
        return ""
    share = percent(memory.left_nbytes / memory.limit_nbytes)
    return f"{nbytes(memory.left_nbytes)} ({share}) were left at least"
