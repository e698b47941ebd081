"""Nodes that send each other buffered samples, beside nodes that do not: reads, batches, seconds.

    sudo python -m benchmarks.loaders.exchange [--samples 512] [--compute-ms 2]

Two nodes of two ranks each: network namespaces on a bridge of this machine, which share the
emulated storage (20 MB/s, 2 ms a request) and no memory. C / N = 0.85 over both nodes. A rank
sleeps for --compute-ms per sample of its batch, then all ranks meet, as in synchronous training.
  s        of an epoch after the first, mean
  read     samples' worth of bytes that the storage's own log says it served in it (bound: N - C)
  first    the same of the first epoch, with what was read before it to measure the storage
  spread   the largest rank's batch of a step over the mean rank's, mean over steps
  sent     MB that ranks got from other nodes in an epoch, mean over all epochs
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.loaders.scheduled import COST, write
from benchmarks.nodes import Nodes, why_not
from benchmarks.programs.exchange_ranks import EPOCHS
from benchmarks.programs.scheduled_ranks import held
from vanidl_loaders.emulated_fs.mount import EmulatedStorage

NODES, NODE_RANKS, SAMPLE_NBYTES, LIMIT_S = 2, 2, 3 * 128 * 128 * 4, 180.0
ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "DataLoader": ("baseline", {}),
    "scheduled, no exchange": ("scheduled", {"node_exchange": "off"}),
    "scheduled, exchange": ("scheduled", {"node_exchange": "on"}),
    "scheduled, auto": ("scheduled", {"node_exchange": "auto"}),
}


def main() -> None:
    """Prints a table."""
    options = _options()
    if (reason := why_not()) is not None:
        sys.exit(f"expected a machine that can have several nodes, found none: {reason}")
    bound = options.samples - held(options.samples)
    print(f"{options.samples} samples, {NODES} nodes of {NODE_RANKS} ranks, N - C = {bound}")
    print(f"{'':<26}{'s':>8}{'read':>8}{'first':>8}{'spread':>8}{'sent MB':>9}")
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch) / "source", options.samples)
        for name in ROWS:
            if options.only in name:
                print(f"{name:<26}{row(name, Path(scratch), options)}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=512, help="of 196,608 bytes")
    parser.add_argument("--compute-ms", type=float, default=2.0, help="per sample")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    return parser.parse_args()


def row(name: str, scratch: Path, options: argparse.Namespace) -> str:
    """The figures of one loader."""
    kind, own = ROWS[name]
    own = own | ({"buffer": held(options.samples)} if kind == "scheduled" else {})
    log = scratch / "requests.jsonl"
    log.unlink(missing_ok=True)
    with EmulatedStorage(scratch / "source", scratch / "mount", cost=COST, log=log) as storage:
        config = [kind, own, options.compute_ms / 1e3, str(storage.target)]
        ranks = run_ranks(config, scratch)
        begins, requests = ranks[0]["begins"], storage.requests()
    served = sum(each.size for each in requests if begins[1] <= each.start_ns < begins[-1])
    first = sum(each.size for each in requests if each.start_ns < begins[1]) / SAMPLE_NBYTES
    seconds = (begins[-1] - begins[1]) / 1e9 / (EPOCHS - 1)
    sizes = np.array([each["sizes"][1:] for each in ranks]).reshape(len(ranks), -1)
    spread = (sizes.max(0) / sizes.mean(0)).mean()
    sent = sum(each["stats"].get("remote_nbytes", 0) for each in ranks) / EPOCHS / 1e6
    read = served / SAMPLE_NBYTES / (EPOCHS - 1)
    return f"{seconds:8.2f}{read:8.1f}{first:8.1f}{spread:8.3f}{sent:9.1f}"


def run_ranks(config: list[Any], scratch: Path) -> list[dict[str, Any]]:
    """What each rank found.

    Raises:
        SystemExit: One failed.
    """
    private, ranks = scratch / "private", NODES * NODE_RANKS
    private.mkdir(exist_ok=True)
    results = [scratch / f"{rank}.json" for rank in range(ranks)]
    with Nodes(private) as nodes:
        numbers = [nodes.add() for _ in range(NODES)]
        for out in results:
            out.unlink(missing_ok=True)
        for number in numbers:
            nodes.start(number, node_command(nodes.address(0), number, config, results))
        try:
            well = all(nodes.wait(number, LIMIT_S) for number in numbers)
        except subprocess.TimeoutExpired:
            well = False
    if not well:
        raise SystemExit(f"expected all ranks of {config[0]} to end well, found one that did not")
    return [json.loads(out.read_text()) for out in results]


def node_command(address: str, node: int, config: list[Any], results: list[Path]) -> list[str]:
    """Starts the ranks of a node, side by side in its namespaces, and waits for them."""
    common = {
        "WORLD_SIZE": len(results), "LOCAL_WORLD_SIZE": NODE_RANKS, "MASTER_ADDR": address,
        "MASTER_PORT": 29500, "TORCHELASTIC_RUN_ID": "benchmark", "OMP_NUM_THREADS": 1,
        "GLOO_SOCKET_IFNAME": "eth0",
    }  # fmt: skip
    lines = list[str]()
    for local in range(NODE_RANKS):
        rank = node * NODE_RANKS + local
        own = common | {"RANK": rank, "LOCAL_RANK": local}
        set_to = " ".join(f"{name}={value}" for name, value in own.items())
        text = json.dumps([*config, str(results[rank])])
        lines.append(
            f"env {set_to} {sys.executable} -m benchmarks.programs.exchange_ranks '{text}' &"
        )
    waits = "for each in $(jobs -p); do wait $each || exit 1; done"
    return ["bash", "-c", "\n".join([*lines, waits])]


if __name__ == "__main__":
    main()
