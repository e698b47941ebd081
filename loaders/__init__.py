"""Data loaders of the papers in one place, each beside the PyTorch DataLoader it replaces.

    workloads  synthetic data sets with the papers' shapes and statistics, a small model each
    storage    an emulated parallel file system (a FUSE mount) with a log of its own
    loading    what every loader offers, and the registry of loaders
    train      one train loop for every workload and loader
    decoders   codecs of scientific samples, decoded on the CPU or a GPU

Nothing heavy is imported here: `import vanidl_loaders` needs no PyTorch, no HDF5 and no MPI.
"""
