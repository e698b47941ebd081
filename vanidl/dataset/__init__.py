"""Facts about data files that can be opened here, and where they come from."""
