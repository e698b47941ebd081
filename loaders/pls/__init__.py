"""Partial local shuffling: each rank keeps N / M samples and exchanges a fraction each epoch.

    from vanidl_loaders import pls
    dataset = pls.ImageFolder(folder, class_file, transform)    # or pls.PartialLocalDataset(base)
    sampler = pls.LocalSampler(dataset, batch_size=b)
    loader = DataLoader(dataset, batch_size=b, sampler=sampler)
    scheduler = pls.Scheduler(dataset, batch_size=b, fraction=Q)
    for batch in pls.Exchanging(scheduler, loader): ...

Source of the idea: Nguyen et al., IPDPS 2022; slides "High Performance IO for Large Scale Deep
Learning".
"""

from .dataset import ImageFolder, PartialLocalDataset
from .exchange import Limits
from .exchange_plan import Ownership, deal, home_fraction
from .scheduler import Exchanging, LocalSampler, Scheduler, exchanging

__all__ = [
    "Exchanging",
    "ImageFolder",
    "Limits",
    "LocalSampler",
    "Ownership",
    "PartialLocalDataset",
    "Scheduler",
    "deal",
    "exchanging",
    "home_fraction",
]
