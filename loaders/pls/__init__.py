"""Partial local shuffling: each rank keeps N / M samples and exchanges a fraction each epoch.

    from loaders import pls
    dataset = pls.ImageFolder(folder, class_file, transform)    # or pls.PartialLocalDataset(base)
    sampler = pls.LocalSampler(dataset, batch_size=b)
    loader = DataLoader(dataset, batch_size=b, sampler=sampler)
    scheduler = pls.Scheduler(dataset, batch_size=b, fraction=Q)
    for batch in pls.exchanging(scheduler, loader, epoch): ...

Source of the idea: Nguyen et al., IPDPS 2022; slides "High Performance IO for Large Scale Deep
Learning".
"""

from loaders.pls.courier import Limits
from loaders.pls.dataset import ImageFolder, PartialLocalDataset
from loaders.pls.iteration import Exchanging, LocalSampler, exchanging
from loaders.pls.ownership import Ownership, deal, home_fraction
from loaders.pls.scheduler import Scheduler

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
