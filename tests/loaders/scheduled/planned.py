"""Loaders that read by a plan."""

from __future__ import annotations

from vanidl_loaders.loader.loader import Settings
from vanidl_loaders.loader.registry import open_loader
from vanidl_loaders.ranks.world import World


def scheduled(samples, rank=0, ranks=1, *, batch=4, epochs=3, drop_last=False, **options):
    settings = Settings(World(rank, ranks, 0, 1), batch, epochs, drop_last=drop_last)
    return open_loader("scheduled", samples, settings, {"gap": 0, "buffer": 60} | options)


def stream(loader, epochs):
    for epoch in epochs:
        loader.set_epoch(epoch)
        for batch in loader:
            yield epoch, batch
