"""Work on other threads, processes and Dask clusters."""
