"""`python prefork.py SOCKET`: forks ranks for prefork_client.py from a process that has PyTorch.

Importing it takes seconds of each rank's own. A fork has the streams, the environment and the
folder of the client that asked for it, and is killed when the client is. Ends when stdin does.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass

import vanidl_loaders.pls.loader
import vanidl_loaders.spatial.loader
import vanidl_loaders.training  # noqa: F401

MOST_STREAMS = 8
OWN = 1000  # from here on are the files of a fork that the client's are not to replace


@dataclass(frozen=True)
class Asked:
    """What a client wants a fork to be, and its open files, of which `streams` are the numbers."""

    program: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int]
    files: list[int]


@dataclass(frozen=True)
class Rank:
    """A fork at work; the pipe ends with it."""

    pid: int
    pipe: int
    client: socket.socket


def main() -> None:
    """In the server until stdin ends; in a fork the program that it is to run."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        asked = serve(listener)
    if asked:  # in a fork, what was the server's is closed
        become(asked)
        leave(run(asked.program))


def serve(listener: socket.socket) -> Asked | None:
    """What to be in a fork; None in the server, at its end."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(listener, selectors.EVENT_READ)
        waiting.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is listener:
                    client = listener.accept()[0]
                    asked = received(client)
                    rank = forked(client, asked)
                    if rank is None:
                        return asked
                    waiting.register(rank.pipe, selectors.EVENT_READ, rank)
                    waiting.register(client, selectors.EVENT_READ, rank)
                elif key.data.pipe in waiting.get_map():  # else its end was seen a moment ago
                    end(key.data, key.fileobj, waiting)


def received(client: socket.socket) -> Asked:
    """What a client asks for."""
    text, files, _, _ = socket.recv_fds(client, 1 << 20, MOST_STREAMS)
    while not text.endswith(b"\n"):
        text += client.recv(1 << 20)
    content = json.loads(text)
    for module in content.pop("imports"):
        importlib.import_module(module)
    return Asked(**content, files=files)


def forked(client: socket.socket, asked: Asked) -> Rank | None:
    """The fork for a client; None in the fork."""
    begin, end_of_rank = os.pipe()
    pid = os.fork()
    if not pid:
        fcntl.fcntl(end_of_rank, fcntl.F_DUPFD, OWN)
        return None
    for file in (*asked.files, end_of_rank):
        os.close(file)
    return Rank(pid, begin, client)


def end(rank: Rank, ended: object, waiting: selectors.BaseSelector) -> None:
    """Of the fork or of its client: the other one ends, too."""
    if ended is rank.client:
        os.kill(rank.pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(rank.pid, 0)[1])
    for each in (rank.pipe, rank.client):
        waiting.unregister(each)
    os.close(rank.pipe)
    with rank.client, suppress(BrokenPipeError):
        rank.client.sendall(b"%d" % status)


def become(asked: Asked) -> None:
    """The fork has the client's files, environment and folder."""
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD, OWN) for file in asked.files]
    for file, number in zip(moved, asked.streams, strict=True):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked.environment)
    os.chdir(asked.folder)


def run(program: list[str]) -> int:
    """As the interpreter does: a file, or -m and a module; its exit status."""
    is_module = program[0] == "-m"
    sys.argv = program[1:] if is_module else program
    try:
        if is_module:
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def leave(status: int) -> None:
    """As the interpreter ends, but for PyTorch's modules, which take most of a second to free."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi and mpi.Is_initialized() and not mpi.Is_finalized():
        mpi.Finalize()
        ctypes.CDLL(None).exit(status)  # mpiexec is told only there
    os._exit(status)


if __name__ == "__main__":
    main()
