"""The same decoders behind an NVIDIA DALI pipeline, on the CPU or a GPU.

DALI asks for a batch, the containers are read and decoded as everywhere else, and the outputs
enter the pipeline as an external source, to be followed by any of DALI's own operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import MissingError, UsageError
from .coding import decode_batch, open_sample

if TYPE_CHECKING:
    from nvidia.dali.pipeline import Pipeline


def build_pipeline(
    paths: Sequence[str | Path],
    names: Sequence[str],
    *,
    batch: int,
    device: str = "cpu",
    device_id: int | None = None,
    threads: int = 1,
) -> Pipeline:
    """A built DALI pipeline: `run()` gives a TensorList a name, in order of the paths.

    Args:
        paths: Containers of samples of one shape; the incomplete batch at the end is dropped.
        names: Arrays of each sample, in the order of the pipeline's outputs.
        batch: Samples a run.
        device: `cpu`, or `gpu` to decode there.
        device_id: Of the GPU; None with `cpu`: DALI then needs no GPU at all.
        threads: Of DALI, and of the decoder on the CPU.

    Raises:
        MissingError: DALI is not installed.
        UsageError: Fewer paths than a batch, or a GPU asked for without its number.
    """
    dali, functions = _import_dali()
    if len(paths) < batch:
        raise UsageError(f"expected at least {batch} containers for a batch, found {len(paths)}")
    if device == "gpu" and device_id is None:
        raise UsageError("expected the number of a GPU to decode on, found none: give device_id")
    built = dali.Pipeline(
        batch_size=batch, num_threads=threads, device_id=device_id, prefetch_queue_depth=1
    )
    samples = source(paths, names, batch=batch, device=device, threads=threads)
    # Outputs come from outside the pipeline, on the device where they were decoded.
    with built:
        outputs = functions.external_source(
            source=samples, num_outputs=len(names), device=device, batch=True
        )
        built.set_outputs(*outputs)
    built.build()
    return built


def source(
    paths: Sequence[str | Path], names: Sequence[str], *, batch: int, device: str, threads: int
) -> Callable[[int], list[Any]]:
    """What DALI calls with the number of a batch; ends the epoch with StopIteration."""

    def read(number: int) -> list[Any]:
        chosen = paths[number * batch : (number + 1) * batch]
        if len(chosen) < batch:
            raise StopIteration
        samples = [open_sample(Path(path).read_bytes()) for path in chosen]
        if device == "gpu":
            decoded = decode_batch(samples, device="cuda", threads=threads)
            return [decoded[name] for name in names]
        decoded = decode_batch(samples, device="cpu", threads=threads)
        return [decoded[name].numpy() for name in names]  # of a tensor DALI asks for its stream

    return read


def _import_dali() -> tuple[Any, Any]:
    try:
        from nvidia import dali
        from nvidia.dali import fn
    except ImportError as error:
        raise MissingError(
            f"expected NVIDIA DALI, found: {error}; install it with pip install 'vanidl-io[dali]'"
        ) from error
    return dali, fn
