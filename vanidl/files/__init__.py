"""Files of our own: written whole or not at all, and checked when they are read back."""
