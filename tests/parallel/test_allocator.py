"""What a process keeps of the memory that it freed: counted by the pages the system clears."""

from __future__ import annotations

import mmap
import os
import platform
import subprocess
import sys

import pytest

ROUNDS = 4
PAGES = (16 << 20) // mmap.PAGESIZE  # of 32 blocks of 512 KiB

PROGRAM = f"""
import mmap, resource, sys
from vanidl.parallel.children import keep_freed_memory

if "keep" in sys.argv:
    keep_freed_memory()

def touched():
    for block in [bytearray(512 << 10) for _ in range(32)]:
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1

touched()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    touched()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def page_faults(*arguments: str, **environment: str) -> int:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    command = [sys.executable, "-S", "-c", PROGRAM, *arguments]
    done = subprocess.run(
        command, env=kept | environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_freed_memory_is_used_again_unless_the_user_set_limits() -> None:
    assert page_faults() > ROUNDS * PAGES / 2, "the case shows nothing: glibc keeps it anyway"
    assert page_faults("keep") < PAGES / 2
    assert page_faults("keep", MALLOC_TRIM_THRESHOLD_="0") > ROUNDS * PAGES / 2
