"""Reports: figures and results in, documents out."""
