"""The trace viewer's data: lanes of slices, how a page holds them, what a window shows."""
