"""`python -m tests.fuzz.guided [-runs=N] [-max_total_time=S]`: every reader under atheris.

libFuzzer chooses the bytes by the branches that they reach. The first byte names the reader,
the rest is its file; anything but an answer or an InputError ends the run with a trace.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path

import atheris

import vanidl.analyses  # noqa: F401 - which reads no file: instrumenting takes seconds

with atheris.instrument_imports(include=["vanidl.encoding", "vanidl.readers", "vanidl.dataset"]):
    from tests.fuzz.readers import READERS
    from vanidl.errors import InputError

NAMES = tuple(READERS)


def main() -> int:
    """Fuzzes until the limits of the command line; libFuzzer's exit status."""
    with tempfile.TemporaryDirectory(prefix="guided-") as folder:
        pid = os.fork()  # libFuzzer exits without running exit handlers
        if not pid:
            _fuzz(Path(folder))
        _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def _fuzz(folder: Path) -> None:
    """Starts from whole files; never returns."""
    warnings.simplefilter("error")
    corpus = folder / "corpus"
    corpus.mkdir()
    for i, reader in enumerate(READERS.values()):
        (corpus / f"{i}").write_bytes(bytes([i]) + reader.content)

    def tried(data: bytes) -> None:
        reader = READERS[NAMES[data[0] % len(NAMES)]] if data else READERS[NAMES[0]]
        path = folder / reader.name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data[1:])
        with suppress(InputError):
            reader.read(path)

    atheris.Setup([*sys.argv, str(corpus), "-timeout=20", "-rss_limit_mb=4096"], tried)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
