"""Starts ranks as torchrun does, but forked from one process that has imported PyTorch.

python forked_ranks.py RANKS [--train] (PROGRAM | -m MODULE) ARGUMENT...

With --train, what an optimizer imports at its first step (seconds of it) is imported, too.

Waits for all of them, whatever happens to one. The last line on stderr is a JSON list of their
exit statuses (negative: the signal).
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import socket
import sys

import vanidl_loaders.pls.loader
import vanidl_loaders.spatial.loader
import vanidl_loaders.train.train  # noqa: F401


def main():
    ranks, *program = sys.argv[1:]
    if program[0] == "--train":
        importlib.import_module("torch._dynamo")
        program.pop(0)
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    everyone = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "forked"}
    everyone |= {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}
    children = []
    for rank in range(int(ranks)):
        child = os.fork()
        if not child:
            os.environ.update(everyone | {"RANK": str(rank), "LOCAL_RANK": str(rank)})
            run(program)
            return
        children.append(child)
    statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    sys.stderr.write("\n" + json.dumps(statuses) + "\n")
    sys.exit(int(any(statuses)))


def run(program):
    is_module = program[0] == "-m"
    sys.argv = program[1:] if is_module else program
    if is_module:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
