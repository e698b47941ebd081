"""The tracer under AddressSanitizer, UBSan and ThreadSanitizer, in the C programs of the bench.

    python -m benchmarks.truth.sanitizers [--only NAME...]

The tracer's sources are compiled together with `programs/harm.c`, once with the sanitizers of
memory and of undefined behaviour, once with that of threads. Each program runs with the tracer
switched off, then on: a report, or another exit status, is the tracer's. Programs that the
sanitizers do not survive by themselves (bad addresses, seccomp, small stacks) are left out, and
said. The exit status is 1 where there is a report.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.truth.harm import C_PROGRAMS
from vanidl.record import tracer

SOURCES = ("store.c", "files.c", "posix.c", "stdio.c")
BUILDS = {
    "address, undefined": "-fsanitize=address,undefined",
    "threads": "-fsanitize=thread",
}
OPTIONS = {
    # Programs of the bench leave memory and threads behind on purpose, and end in signals.
    "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0:handle_abort=0:allow_user_segv_handler=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    # What names places in code calls mmap, which is ours, before ThreadSanitizer has begun.
    "TSAN_OPTIONS": "symbolize=0:handle_segv=0:handle_abort=0:report_thread_leaks=0",
}
REPORT = re.compile(rb"ERROR: AddressSanitizer|WARNING: ThreadSanitizer|runtime error:")
LIMIT_S = 120


def build(folder: Path, flags: str) -> Path:
    """The programs with the tracer in them."""
    made = folder / "harm"
    sources = [str(tracer.LIBRARY.with_name(name)) for name in SOURCES]
    programs = str(Path(__file__).parent / "programs" / "harm.c")
    how = ("-std=gnu11", "-O1", "-g", "-fno-omit-frame-pointer", "-fno-builtin", "-w", flags)
    libraries = ("-ldl", "-lpthread", "-lm")
    words = ["cc", *how, programs, *sources, "-o", str(made), *libraries]
    subprocess.run(words, check=True)
    return made


def run(program: Path, name: str, *, traced: bool) -> tuple[int | str, bytes]:
    """Exit status and what was said, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="sanitized-") as made:
        work, calls = Path(made) / "work", Path(made) / "calls"
        work.mkdir()
        calls.mkdir()
        variables = {**os.environ, **OPTIONS} | ({"VANIDL_TRACER": str(calls)} if traced else {})
        process = subprocess.Popen(
            [str(program), name], cwd=work, env=variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            said = process.communicate(timeout=LIMIT_S)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return "hangs", process.communicate()[1]
        if traced and not any(calls.iterdir()):
            return "nothing recorded", said
        return process.returncode, said


def main() -> int:
    """A line a program and build; 1 where the tracer is in a report or changes an end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=C_PROGRAMS)
    options = parser.parse_args()
    wrong = 0
    for kind, flags in BUILDS.items():
        clean, out = 0, []
        with tempfile.TemporaryDirectory(prefix="sanitized-build-") as made:
            program = build(Path(made), flags)
            for name in options.only:
                alone, said_alone = run(program, name, traced=False)
                if alone != 0 or REPORT.search(said_alone):
                    out.append(name)
                    continue
                status, said = run(program, name, traced=True)
                if status == alone and not REPORT.search(said):
                    clean += 1
                    continue
                wrong += 1
                text = said[:3000].decode(errors="replace")
                print(f"{kind}: {name}: {alone} -> {status}\n{text}", flush=True)
        left_out = f"; left out, as they do not run without the tracer: {', '.join(out)}"
        print(f"{kind}: {clean} of {len(options.only)} programs clean{left_out * bool(out)}",
              flush=True)  # fmt: skip
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
