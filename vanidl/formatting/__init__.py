"""Numbers and names as people read them. Imports nothing of the package."""
