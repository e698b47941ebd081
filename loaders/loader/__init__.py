"""The loader protocol, its registry, and what every loader shares."""
