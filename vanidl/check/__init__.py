"""Whether log and trace files are whole: one verdict per file."""
