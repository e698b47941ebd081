"""The one account of where time went, and what would be gained without a part of it."""
