"""Spatial-parallel reads: each rank reads its block of a sample that is too large for one.

    boxes, grid      blocks, halos and edges: geometry only
    describe         file -> layout: contiguous (HDF5, NPY, raw), chunked, by the library
    layouts, chunks  boxes of a layout; chunks of HDF5, decoded by whoever needs them
    posix, mpiio     contiguous bytes through pread or an MPI-IO subarray view
    reading, joint   one rank's part: read alone, or a level share and an exchange
    sharing          P ranks per sample
    store            blocks in memory, exchanged instead of read again
    dataset          `SlabDataset`, for those who keep their DataLoader
    loader           `SpatialLoader`, with read-ahead and store

Source of the idea: McCarthy, Maruyama and Van Essen, Distributed I/O for Data-Intensive
Convolutional Neural Networks (poster), and Oyama et al., arXiv 2007.12856.
"""

from ..ranks.messages import launched_transport
from .describe import RawFile
from .grid import Division

__all__ = ["Division", "RawFile", "launched_transport"]
