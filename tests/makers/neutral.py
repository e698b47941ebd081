"""Runs a command where nothing names this machine, so that what it records can be kept here.

    sudo python -m tests.makers.neutral COMMAND ...     # from the repository's root

In namespaces of its own for mounts and the host's name, this checkout lies at /opt/vanidl, its
Python and packages at /opt/python and /opt/lib, data and runs at /scratch (the folder that SCRATCH
names here); the host is node01. COMMAND starts in /opt/vanidl, `python` is /opt/python's. Linux,
root and util-linux are needed.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = f"/opt/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"

_START = """
set -e
mount -t tmpfs tmpfs /opt
mkdir -p /opt/vanidl /opt/python /opt/packages "$PACKAGES"
mount --bind "$CHECKOUT" /opt/vanidl
mount --bind "$PYTHON" /opt/python
mount --bind "$SITE" "$PACKAGES"
ln -s /opt/vanidl/vanidl /opt/packages/vanidl
ln -s /opt/vanidl/loaders /opt/packages/vanidl_loaders
mkdir -p /scratch && mount --bind "$SCRATCH" /scratch
awk '$2 !~ "^/(opt|scratch|proc|sys|dev|tmp|$)" {print $2}' /proc/mounts |
  xargs --no-run-if-empty umount --lazy || true
hostname node01
cd /opt/vanidl
exec "$@"
"""


def run_neutral(command: list[str], scratch: Path) -> int:
    """The exit status of a command that runs there.

    Args:
        command: Its words.
        scratch: What it sees as /scratch.
    """
    kept = {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
    environment = kept | {
        "CHECKOUT": str(ROOT),
        "PYTHON": str(Path(sys.base_prefix).resolve()),
        "PACKAGES": PACKAGES,
        "SITE": site.getsitepackages()[0],
        "SCRATCH": str(scratch),
        "PATH": "/opt/python/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": f"/opt/packages:{PACKAGES}",
        "HOME": "/scratch",
        "LOGNAME": "user",
        "TMPDIR": "/tmp",
    }
    apart = ["unshare", "--mount", "--uts", "bash", "-c", _START, "neutral"]
    place = Path("/scratch")
    was_there = place.exists()
    try:
        return subprocess.run([*apart, *command], env=environment, check=False).returncode
    finally:
        if not was_there and place.exists():
            place.rmdir()  # here it is the empty folder that the other was mounted on


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_neutral(sys.argv[1:], Path(os.environ.get("SCRATCH", folder))))
