"""One rank of benchmarks/loaders/faults.py: runs a command, and notes how and when it ended.

    torchrun --nproc-per-node 2 -m benchmarks.programs.fault_rank FOLDER COMMAND...

The command is a child, so that its exit status is known however it ends. It dies with this process,
and gets the signals that the launcher sends. FOLDER gets rankN.pid, rankN.err and rankN.json.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_RANK = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK")


def main() -> None:
    """Ends as the command did."""
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    rank = next(os.environ[name] for name in _RANK if name in os.environ)
    with (folder / f"rank{rank}.err").open("w") as said:
        child = subprocess.Popen(
            command, stderr=said, preexec_fn=_die_with_parent, close_fds=False
        )  # mpiexec's ranks talk to it through descriptors
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        signal.signal(signal.SIGINT, lambda *_: child.send_signal(signal.SIGINT))
        (folder / f"rank{rank}.pid").write_text(str(child.pid))
        status = child.wait()
    found = {"status": status, "ended_s": time.time()}
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    sys.stderr.write((folder / f"rank{rank}.err").read_text())
    sys.exit(status if status >= 0 else 128 - status)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
