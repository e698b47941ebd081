"""Loaders of vanidl_loaders that make a change: what each does, and the command that uses it."""

from __future__ import annotations

from dataclasses import dataclass

_EXPLANATIONS = {
    "scheduled": "It plans the shuffles of all epochs in advance, keeps the samples that are "
    "needed again soonest in memory, and merges neighbouring reads; every batch is that of the "
    "global shuffle.",
    "pls": "Partial local shuffling: each rank keeps its share of the samples near and exchanges "
    "a tenth of it with the others every epoch.",
    "spatial": "Where all ranks need the same samples, as in spatial parallelism, each reads only "
    "its block of every sample.",
    "decoded": "It reads samples that python -m vanidl_loaders encode has packed, and decodes "
    "them on the GPU where there is one.",
    "webdataset": "It reads tar shards, which python -m vanidl_loaders convert --to tar makes of "
    "the samples: one open for thousands of samples.",
}
_OF_LEVERS = {
    "kept": ("scheduled", " --buffer-fraction {:g}"),
    "exchanged": ("pls", " --exchange-fraction {:g}"),
    "divided": ("spatial", ""),
    "decode": ("decoded", " --encoded ENCODED --decode-on auto"),
}


@dataclass(frozen=True, slots=True)
class LoaderCall:
    """A loader of vanidl_loaders, the command that trains with it, and a sentence on it."""

    name: str
    command: str
    explanation: str


def loader_call(name: str, options: str = "", *, ranks: int = 1, hosts: int = 1) -> LoaderCall:
    """The call of a loader with these options, by so many ranks on so many hosts."""
    command = (
        f"{_launch(ranks, hosts)} -m vanidl_loaders train --data DATA --loader {name}{options}"
    )
    return LoaderCall(name, command, _EXPLANATIONS[name])


def _launch(ranks: int, hosts: int) -> str:
    """How so many ranks are started: on each of several hosts with one command."""
    if ranks < 2:
        return "python"
    if hosts < 2 or ranks % hosts:
        return f"torchrun --nproc-per-node {ranks}"
    meet = "--rdzv-backend c10d --rdzv-endpoint HOST:29500"
    return f"torchrun --nnodes {hosts} --nproc-per-node {ranks // hosts} {meet}"


def call_of_change(
    lever: str, amount: float | None, *, ranks: int, hosts: int
) -> LoaderCall | None:
    """The loader that makes a change of the what-if; None: an argument or hardware does."""
    if lever not in _OF_LEVERS:
        return None
    name, options = _OF_LEVERS[lever]
    return loader_call(name, options.format(amount), ranks=ranks, hosts=hosts)
