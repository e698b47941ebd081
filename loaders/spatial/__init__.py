"""Spatial-parallel reads: each rank reads its block of a sample that is too large for one.

    grid             boxes, blocks, halos and edges: geometry only; P ranks per sample
    layouts          file -> layout: contiguous (HDF5, NPY, raw), chunked, by the library; its boxes
                     through pread or an MPI-IO subarray view
    reading          one rank's part: read alone, or a level share and an exchange; what is
                     measured to choose between them
    dataset          `SlabDataset`, for those who keep their DataLoader
    loader           `SpatialLoader`, with read-ahead; blocks in memory, exchanged instead of read

Source of the idea: McCarthy, Maruyama and Van Essen, Distributed I/O for Data-Intensive
Convolutional Neural Networks (poster), and Oyama et al., arXiv 2007.12856.
"""

from ..ranks.messages import launched_transport
from .grid import Division
from .layouts import RawFile

__all__ = ["Division", "RawFile", "launched_transport"]
