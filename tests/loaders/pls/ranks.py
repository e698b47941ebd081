"""One rank of tests/loaders/pls/test_ranks.py: exchanges in several cases, prints what it saw."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
import zlib
from pathlib import Path

from vanidl_loaders import pls
from vanidl_loaders.data.samples import open_samples
from vanidl_loaders.errors import LoadersError
from vanidl_loaders.pls.storage import content, new_message, sample_of
from vanidl_loaders.ranks.messages import open_transport
from vanidl_loaders.ranks.world import World

EPOCHS, BATCH = 3, 4


def exchange(options):
    """Every fraction in memory and in a folder, ranks of uneven speed."""
    samples, world = open_samples(options["data"]), World.detect()
    slow = random.Random(world.rank)
    cases = []
    for fraction in options["fractions"]:
        for folder in (None, f"{options['local']}/{fraction}"):
            dataset = pls.PartialLocalDataset(samples, world=world, folder=folder)
            transport = open_transport(world, options["backend"])
            limits = pls.Limits(options["in_flight_nbytes"], 60)
            scheduler = pls.Scheduler(dataset, BATCH, fraction, transport=transport, limits=limits)
            epochs = []
            for epoch in range(EPOCHS):
                for _ in pls.exchanging(scheduler, range(scheduler.steps), epoch):
                    time.sleep(slow.random() / 100)
                epochs.append([dataset.held().tolist(), checksums(dataset)])
            scheduler.close()
            store, traffic = dataset.store, scheduler.traffic
            cases.append(
                {
                    "rank": world.rank,
                    "fraction": fraction,
                    "epochs": epochs,
                    "peak_samples": store.peak_samples,
                    "swapped": traffic.swapped,
                    "peak_in_flight_nbytes": traffic.peak_in_flight_nbytes,
                }
            )
    say({"what": "exchange", "rank": world.rank, "cases": cases})


def checksums(dataset):
    """Id in the message -> checksum, of all that the store has."""
    messages = [dataset.store.message(i) for i in dataset.store]
    return {sample_of(m): zlib.crc32(content(m)) for m in messages}


def killed(options):
    """Rank 1 is killed while it writes what it received; the others wait for it."""
    world = World.detect()
    dataset = pls.PartialLocalDataset(
        open_samples(options["data"]), world=world, folder=options["local"]
    )
    transport = open_transport(world, options["backend"])
    limits = pls.Limits(1, options["timeout_s"])  # one item at a time
    scheduler = pls.Scheduler(dataset, BATCH, 1.0, transport=transport, limits=limits)
    scheduler.scheduling(0)
    if world.rank == 1:
        Path.replace = die_at(3)
    try:
        scheduler.clean_local_storage()
    except LoadersError as error:
        say({"what": "killed", "rank": world.rank, "error": str(error)})
        sys.exit(3)


class Large:
    """Samples of 60 MB, each full of its id."""

    nbytes = 60_000_000

    def __len__(self):
        return 4

    def identity(self):
        return "large"

    def read(self, ids, counts):
        for sample in ids:
            message = new_message(sample, self.nbytes)
            content(message)[:] = 100 + sample
            yield message

    def decode(self, message):
        return content(message)


def large(options):
    """Two samples of 60 MB a rank change places, though one alone is over the limit."""
    world = World.detect()
    dataset = pls.PartialLocalDataset(Large(), world=world)
    transport = open_transport(world, options["backend"])
    scheduler = pls.Scheduler(dataset, 1, 1.0, transport=transport, limits=pls.Limits(1 << 20, 60))
    for epoch in range(EPOCHS):
        scheduler.scheduling(epoch)
        scheduler.clean_local_storage()
    right = [bool((dataset[slot] == 100 + i).all()) for slot, i in enumerate(dataset.held())]
    lengths = {len(dataset[slot]) for slot in range(len(dataset))}
    traffic = scheduler.traffic
    scheduler.close()
    said = {"what": "large", "rank": world.rank, "right": right, "lengths": list(lengths)}
    say(said | {"swapped": traffic.swapped, "peak": traffic.peak_in_flight_nbytes})


def die_at(call):
    """Stands for Path.replace: a write that is complete but for its name."""
    replace, calls = Path.replace, [0]

    def replaced(self, target):
        calls[0] += 1
        if calls[0] == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return replace(self, target)

    return replaced


def silent(options):
    """Rank 1 lives and never exchanges; rank 0 gives up."""
    world, over = World.detect(), Path(options["local"], "over")
    dataset = pls.PartialLocalDataset(open_samples(options["data"]), world=world)
    transport = open_transport(world, options["backend"])
    limits = pls.Limits(timeout_s=5.0)
    scheduler = pls.Scheduler(dataset, BATCH, 1.0, transport=transport, limits=limits)
    scheduler.scheduling(0)
    if world.rank == 0:
        try:
            scheduler.clean_local_storage()
        except LoadersError as error:
            say({"what": "silent", "rank": 0, "error": str(error)})
        over.touch()
    while not over.exists():
        time.sleep(0.02)
    sys.stdout.flush()
    os._exit(0)  # an MPI that is left with open requests may wait for them


def say(what):
    """One JSON object."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


CASES = {"exchange": exchange, "large": large, "silent": silent, "killed": killed}

if __name__ == "__main__":
    chosen = json.loads(sys.argv[1])
    for case in chosen["cases"]:
        CASES[case](chosen)
