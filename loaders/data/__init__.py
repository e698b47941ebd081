"""Samples and how they are read: order, formats, coalesced requests."""
