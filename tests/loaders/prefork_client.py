"""A Python program as ranks that prefork.py forks, started as by a launcher.

python prefork_client.py SOCKET [--ranks N] [--import MODULE] (PROGRAM | -m MODULE) ARGUMENT...

With --ranks: N of them with torchrun's environment. It waits for all, whatever happens to one;
the last line on stderr is a JSON list of their exit statuses (negative: the signal). Without: one,
which mpiexec started; this process ends as it does. Needs no `site`, to be quick.
"""

import json
import os
import socket
import sys


def main():
    path, *program = sys.argv[1:]
    ranks, modules = 0, []
    while program[0] in ("--ranks", "--import"):
        option, value, *program = program
        if option == "--ranks":
            ranks = int(value)
        else:
            modules.append(value)
    environments = torchrun(ranks) if ranks else [{}]
    clients = [asked(path, program, modules, each) for each in environments]
    statuses = [int(client.recv(64) or b"1") for client in clients]
    if ranks:
        sys.stderr.write("\n" + json.dumps(statuses) + "\n")
        sys.exit(int(any(statuses)))
    if statuses[0] < 0:
        os.kill(os.getpid(), -statuses[0])
    sys.exit(statuses[0])


def torchrun(ranks):
    """The environment of each rank."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = str(probe.getsockname()[1])
    everyone = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "forked"}
    everyone |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return [everyone | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]


def asked(path, program, modules, environment):
    """The connection over which a fork's exit status comes."""
    streams = [0, 1, 2]
    if "PMI_FD" in os.environ:  # over which mpiexec and its ranks talk
        streams.append(int(os.environ["PMI_FD"]))
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    text = json.dumps(
        {
            "program": program,
            "imports": modules,
            "environment": dict(os.environ) | environment,
            "folder": os.getcwd(),  # noqa: PTH109 - no pathlib, to start fast
            "streams": streams,
        }
    )
    socket.send_fds(client, [text.encode() + b"\n"], streams)
    return client


if __name__ == "__main__":
    main()
