"""Records of many files -> one `Trace`: jobs, processes, operations, clocks."""
