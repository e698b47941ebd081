"""A comparison as text, JSON and one HTML page; the same numbers and words in all three."""
