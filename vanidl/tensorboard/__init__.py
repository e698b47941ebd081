"""The tab "I/O" of TensorBoard: the runs below its log folder, each as vanidl's page."""
