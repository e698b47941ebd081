"""Connections between the nodes of a job: over TCP, for those who know the job's token only.

Messages are those of multiprocessing.connection: a length, then bytes; nothing is unpickled. Either
side proves with an HMAC that it has the token of that node, which ranks share through the
transport that started them.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from ..errors import InputError
from .messages import Transport

CONNECT_TIMEOUT_S = 20.0
"""For a connection and its proofs."""


@dataclass(frozen=True)
class Address:
    """Where a node listens.

    Attributes:
        hosts: Addresses and names that others may reach it by; the first that answers is used.
        port: The same for all of them.
    """

    hosts: tuple[str, ...]
    port: int


def share_job_token(transport: Transport) -> bytes:
    """A secret of this job, the same on every rank; every rank calls it."""
    own = secrets.token_bytes(32) if transport.world.rank == 0 else None
    token: bytes = transport.gather(own)[0]
    return token


class Door:
    """Listens for other nodes; each that proves itself is served by a thread.

    Args:
        token: That others have to have.
        serve: Called with each connection; the connection is closed when it returns.
        timeout_s: Longest wait for the other side within a message.
    """

    def __init__(self, token: bytes, serve: Callable[[Connection], None], timeout_s: float) -> None:
        self._token, self._serve, self._timeout_s = token, serve, timeout_s
        self._socket = socket.create_server(("", 0), backlog=128)
        self.address = Address(_own_hosts(), self._socket.getsockname()[1])
        threading.Thread(target=self._accept, name="exchange", daemon=True).start()

    def close(self) -> None:
        """Lets nobody in any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes who waits in `accept`
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                peer, _ = self._socket.accept()
                work = threading.Thread(target=self._admit, args=(peer,), daemon=True)
                work.start()

    def _admit(self, peer: socket.socket) -> None:
        refused = suppress(OSError, EOFError, AuthenticationError)
        with refused, _open_connection(peer, CONNECT_TIMEOUT_S) as connection:
            deliver_challenge(connection, self._token)
            answer_challenge(connection, self._token)
            _limit(connection, self._timeout_s, socket.SO_SNDTIMEO)
            _limit(connection, 0, socket.SO_RCVTIMEO)  # it may have nothing to ask for long
            self._serve(connection)


def connect(address: Address, token: bytes, timeout_s: float) -> Connection:
    """A connection to the node that listens there.

    Args:
        address: Of the node.
        token: Of the node.
        timeout_s: Longest wait for it within a message.

    Raises:
        InputError: Nobody there has the token.
    """
    found = list[str]()
    for host in address.hosts:
        try:
            peer = socket.create_connection((host, address.port), CONNECT_TIMEOUT_S)
            connection = _open_connection(peer, CONNECT_TIMEOUT_S)
            try:
                answer_challenge(connection, token)
                deliver_challenge(connection, token)
            except BaseException:
                connection.close()
                raise
        except (OSError, EOFError, AuthenticationError) as error:
            found.append(f"{host}: {str(error) or type(error).__name__}")
            continue
        for side in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            _limit(connection, timeout_s, side)
        return connection
    raise InputError(
        f"expected a node of this job on port {address.port} of {' or '.join(address.hosts)}, "
        f"found {'; '.join(found)}: open the network between nodes, or set --node-exchange off"
    )


def _open_connection(peer: socket.socket, timeout_s: float) -> Connection:
    peer.settimeout(None)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection = Connection(peer.detach())
    for side in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
        _limit(connection, timeout_s, side)
    return connection


def _limit(connection: Connection, seconds: float, side: int) -> None:
    """Reads (or writes) that last longer raise BlockingIOError; 0: never."""
    with socket.socket(fileno=os.dup(connection.fileno())) as peer:
        whole = int(seconds)
        value = struct.pack("ll", whole, int((seconds - whole) * 1e6))
        peer.setsockopt(socket.SOL_SOCKET, side, value)


def _own_hosts() -> tuple[str, ...]:
    """This host's addresses: the one towards rank 0, where it is known, then those of its name."""
    found, name = list[str](), socket.gethostname()
    towards = os.environ.get("MASTER_ADDR")
    if towards:
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((towards, 9))  # sends nothing
            found.append(probe.getsockname()[0])
    with suppress(OSError):
        found += [str(each[4][0]) for each in socket.getaddrinfo(name, None, socket.AF_INET)]
    return tuple(dict.fromkeys([*found, name]))
