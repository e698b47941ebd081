"""Nodes of a cluster on one machine: they share folders, and neither network, memory nor /tmp.

Each node is a network namespace on a bridge, with namespaces of its own for processes, mounts,
host name and shared memory. `kill` ends all its processes at once, `unplug` takes its cable, so
that nobody is told. Needs root, `ip` and `unshare` (Linux).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from types import TracebackType

_free = count(1)  # of 10.213.*: two clusters have networks of their own

_START = """
mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs "$TMPDIR" && hostname "$NODE" && exec "$@"
"""


def why_not() -> str | None:
    """Why there can be no nodes here, None: there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [name for name in ("ip", "unshare", "mount") if shutil.which(name) is None]
    return f"needs {', '.join(missing)} (iproute2, util-linux)" if missing else None


class Nodes:
    """A bridge, and nodes on it; what runs there ends with the block."""

    def __init__(self, private: Path) -> None:
        """`private` is the folder that is another one on each node: their TMPDIR."""
        self._environment = {**os.environ, "TMPDIR": str(private)}
        self._net = next(_free)
        self._bridge = f"vb{os.getpid()}-{self._net}"
        self._running: dict[int, list[subprocess.Popen[bytes]]] = {}

    def __enter__(self) -> Nodes:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"10.213.{self._net}.1/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for node in self._running:
            self.kill(node)
            with suppress(subprocess.CalledProcessError):  # one that was unplugged
                _ip("link", "del", self._cable(node))
            _ip("netns", "del", self._name(node))
        _ip("link", "del", self._bridge)

    def add(self) -> int:
        """Another node; its number."""
        node = len(self._running)
        name, cable = self._name(node), self._cable(node)
        _ip("netns", "add", name)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("link", "set", cable, "master", self._bridge, "up")
        for words in (("addr", "add", f"{self.address(node)}/24", "dev", "eth0"),
                      ("link", "set", "eth0", "up"), ("link", "set", "lo", "up")):  # fmt: skip
            _ip("-n", name, *words)
        self._running[node] = []
        return node

    def address(self, node: int) -> str:
        """Where other nodes reach it."""
        return f"10.213.{self._net}.{node + 2}"

    def node_at(self, address: str) -> int:
        """The node with that address, of which a scheme and a port may be part."""
        return next(node for node in self._running if f"{self.address(node)}:" in f"{address}:")

    def start(self, node: int, command: Sequence[str], cpu: int | None = None) -> None:
        """Starts a program on a node, on one processor alone where one is given."""
        pinned = ["taskset", "-c", str(cpu)] if cpu is not None else []
        apart = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child",
                 "--mount-proc", "bash", "-c", _START, "node"]  # fmt: skip
        self._running[node].append(
            subprocess.Popen(
                ["ip", "netns", "exec", self._name(node), *pinned, *apart, *command],
                env=self._environment | {"NODE": f"node{node}"},
                stderr=subprocess.DEVNULL,
            )
        )

    def wait(self, node: int, limit_s: float) -> bool:
        """Waits for what runs on a node; True where all of it ended well.

        Raises:
            subprocess.TimeoutExpired: It takes longer.
        """
        return not any(program.wait(limit_s) for program in self._running[node])

    def kill(self, node: int) -> None:
        """Ends everything that runs on a node, without a warning."""
        for program in self._running[node]:
            program.send_signal(signal.SIGKILL)  # and with it the first process of its namespace
            program.wait()
        self._running[node] = []

    def unplug(self, node: int) -> None:
        """Takes the cable of a node: its connections are not closed, they are silent."""
        _ip("link", "set", self._cable(node), "down")

    def _name(self, node: int) -> str:
        return f"vn{os.getpid()}-{self._net}-{node}"

    def _cable(self, node: int) -> str:
        return f"vc{os.getpid()}-{self._net}{node}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
