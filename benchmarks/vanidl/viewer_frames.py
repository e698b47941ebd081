"""Frames of the trace viewer with many slices in view, in headless Chromium.

A page with that many slices is opened at 1440 x 900, all of them in view, and moved and zoomed
for some hundred frames. Prints how long drawing a frame takes and how far apart frames come, with
the limit of 60 frames a second; exit status 1 where the median of drawing is above it. Chromium
draws without a graphics card here, so a desktop is faster.

    python -m benchmarks.vanidl.viewer_frames [--slices 100000] [--frames 240]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.vanidl.made_traces import made_trace
from tests.makers.browser import chromium
from vanidl.analyses.results import analyse
from vanidl.report.html import write_html
from vanidl.run import Run

LIMIT_MS = 1000 / 60

_FRAMES = """
    const done = arguments[0], frames = FRAMES, trace = document.querySelector(".viewer").trace;
    const {low, high} = trace.model.base, drawing = [], apart = [], slices = [];
    let last = performance.now(), n = 0;
    const next = (now) => {
      if (n > 20) { apart.push(now - last); }
      last = now;
      if (n++ >= frames + 20) return done([drawing, apart, slices]);
      const part = 1 - .02 * Math.abs(Math.sin(n / 20));
      trace.view = {low, high: low + (high - low) * part, rank: null};
      const before = performance.now();
      trace.draw();
      if (n > 20) { drawing.push(performance.now() - before); slices.push(trace.slices); }
      requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
"""


def measure(slices: int, frames: int) -> tuple[list[float], list[float], int]:
    """Milliseconds of drawing each frame, between frames, and the fewest slices in one."""
    trace = made_trace(slices)
    with tempfile.TemporaryDirectory() as folder, chromium() as driver:
        page = Path(folder) / "page.html"
        write_html(Run(trace, analyse(trace)), page)
        print(f"page {page.stat().st_size / 1e6:.2f} MB", flush=True)
        driver.set_window_size(1440, 900)
        driver.set_script_timeout(300)
        driver.get(page.as_uri())
        driver.execute_script("document.querySelector('.viewer').scrollIntoView()")
        driver.execute_async_script(
            "const done = arguments[0], poll = setInterval(() => {"
            "if (document.querySelector('.viewer').dataset.drawn) { clearInterval(poll);"
            "setTimeout(done, 1000); } }, 20)"
        )
        found = driver.execute_async_script(_FRAMES.replace("FRAMES", str(frames)))
        return found[0], found[1], min(found[2])


def main() -> int:
    """Run the benchmark; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--slices", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=240)
    options = parser.parse_args()
    drawing, apart, fewest = measure(options.slices, options.frames)
    print(f"{fewest:,} slices in every one of {len(drawing)} frames")
    for name, values in (("drawing", drawing), ("between frames", apart)):
        median, p95 = np.percentile(values, [50, 95])
        print(f"{name:15} median {median:5.1f} ms, p95 {p95:5.1f} ms (limit {LIMIT_MS:.1f} ms)")
    return 0 if float(np.median(drawing)) <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
