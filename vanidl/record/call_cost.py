"""What a call costs more under a tracer, timed before a command starts."""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from vanidl.errors import VanidlError
from vanidl.parallel.children import interpreter_command
from vanidl.record.recorder import Recorder

_READS = """
import os, time
file, best = os.open({path!r}, os.O_RDONLY), 1e12
for _ in range(15):
    began = time.perf_counter_ns()
    for _ in range(2000): os.pread(file, 1, 0)
    best = min(best, (time.perf_counter_ns() - began) / 2000)
print(best)
"""
_PROBE_S = 20  # at most, before nothing is known


def time_call_ns(recorder: Recorder, library: str | None = None) -> float | None:
    """What a call costs more under a tracer than without; None where that cannot be told.

    Reads of a byte of a file of their own, the fastest of 15 x 2,000, in a process each: so many
    that room for what is recorded is made among them. What the tracer writes of them goes.
    """
    took_ns: list[float] = []
    with suppress(OSError, ValueError, VanidlError, subprocess.SubprocessError):
        with tempfile.TemporaryDirectory(prefix="vanidl-probe-") as place:
            data = Path(place) / "data"
            data.write_bytes(b"\0" * 4096)
            tracer = recorder.prepare(Path(place) / "run", library)
            command = interpreter_command(f"exec({_READS.format(path=str(data))!r})")
            for added in ({}, tracer.environment):
                changed = {**os.environ, **added}
                done = subprocess.run(
                    command,
                    env={name: value for name, value in changed.items() if value is not None},
                    stdin=subprocess.DEVNULL, capture_output=True, check=True, timeout=_PROBE_S,
                )  # fmt: skip
                took_ns.append(float(done.stdout))
        return max(took_ns[1] - took_ns[0], 0.0)
    return None
