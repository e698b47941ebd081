"""`python -m vanidl_loaders plan`: the loads of scheduled buffering, beside the bound."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

NAME = "plan"
HELP = "plan buffers and loads of all epochs, print what they cost"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The settings of a plan."""
    add = parser.add_argument
    add("--samples", type=int, required=True, metavar="N", help="samples of the dataset")
    add("--ranks", type=int, default=1, metavar="R")
    add("--batch", type=int, default=16, metavar="B", help="samples of a rank in a step")
    add("--epochs", type=int, default=2, metavar="E")
    add("--buffer", type=int, default=0, metavar="C", help="samples held by all ranks together")
    add("--node-ranks", type=int, default=1, metavar="L", help="ranks that share a node's buffer")
    add("--node-exchange", action="store_true", help="nodes send each other samples: equal batches")
    add("--seed", type=int, default=0)
    add("--drop-last", action="store_true", help="drop the incomplete batch instead of padding")
    add("--balance", default="load", help="load (default), batch or time")
    add("--epoch-order", default="shuffle", help="shuffle (default), greedy or pso")
    add("--load-s", type=float, default=1.0, help="seconds to read a sample, for balance time")
    add("--compute-s", type=float, default=1.0, help="seconds to train on one, for balance time")
    add("--gap", type=int, default=0, metavar="ROWS", help="rows read through to merge requests")
    add("-o", "--output", metavar="FILE", help="save the plan (.npz)")
    add("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Prints the counts of the plan; exit status 0."""
    from ..scheduled.plan import PlanSettings, make_plan, measure_costs

    settings = PlanSettings(
        samples=options.samples,
        ranks=options.ranks,
        batch=options.batch,
        epochs=options.epochs,
        buffer=options.buffer,
        seed=options.seed,
        drop_last=options.drop_last,
        balance=options.balance,
        epoch_order=options.epoch_order,
        load_s=options.load_s,
        compute_s=options.compute_s,
        node_ranks=options.node_ranks,
        exchange=options.node_exchange,
    )
    plan = make_plan(settings)
    counts = asdict(measure_costs(plan, most_gap=options.gap))
    if options.output:
        plan.save(Path(options.output))
    if options.json:
        sys.stdout.write(json.dumps(counts, indent=2) + "\n")
        return 0
    for name, value in counts.items():
        sys.stdout.write(f"{name:<20} {_format_number(value):>14}   {_MEANING[name]}\n")
    return 0


_MEANING = {
    "loads_first_epoch": "samples read in the first epoch",
    "loads_per_epoch": "samples read in an epoch after it, mean",
    "bound": "N - C: the least that any epoch order and any eviction can read",
    "max_imbalance": "largest difference of reads between ranks (or nodes that exchange) in a step",
    "requests_per_epoch": "read requests in an epoch after the first, mean",
    "max_batch": "largest batch of a rank / the baseline's",
    "batch_spread": "largest batch of a step / mean batch, mean over steps: computing waits for it",
    "times_fewer": "reads of a DataLoader / reads of the plan",
}


def _format_number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
