"""`vanidl view`: a run's slices on disk, looked up for the time in view, served to this machine."""
