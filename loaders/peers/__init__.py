"""Other people's loaders behind the same interface, for comparison: pip install 'vanidl-io[peers]'.

They read formats of their own, written once by `python -m vanidl_loaders convert`. Neither visits
samples in the DistributedSampler's order, so their batches are not the baseline's: times compare,
single steps do not.
"""
